package images

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metrics are the kubelet's, by its names.
type metrics struct {
	ensure *prometheus.CounterVec
	pulls  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		ensure: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total", Help: "Images asked for.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		pulls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "Duration of image pulls.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.ensure), reg.Register(m.pulls))
}

// timed makes one pull and observes how long it took.
func (m *Manager) timed(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	start := time.Now()
	ref, err := m.cfg.Service.PullImage(ctx, spec, auth, sandbox)
	m.met.pulls.WithLabelValues("N/A").Observe(time.Since(start).Seconds())
	return ref, err
}

func policyLabel(p v1.PullPolicy) string {
	switch p {
	case v1.PullAlways:
		return "always"
	case v1.PullNever:
		return "never"
	default:
		return "ifnotpresent"
	}
}

func boolLabel(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
