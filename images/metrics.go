package images

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metrics of pulls.
type metrics struct {
	ensure *prometheus.CounterVec
	pulls  *prometheus.HistogramVec

	checks           *prometheus.CounterVec
	intents, records prometheus.Gauge
}

// newMetrics registers the metrics with reg unless it is nil. Managers with the same registerer
// share them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		ensure: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total", Help: "Requests for images.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		pulls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_image_pull_duration_seconds", Help: "Duration of image pulls.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_imagemanager_image_mustpull_checks_total", Help: "Checks whether a pod may use a present image, by result.",
		}, []string{"result"}),
		intents: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_imagemanager_ondisk_pullintents", Help: "Records of unfinished pulls.",
		}),
		records: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_imagemanager_ondisk_pulledrecords", Help: "Records of pulled images.",
		}),
	}
	return m, promshare.Register(reg, m.ensure, m.pulls, m.checks, m.intents, m.records)
}

// sizes has the kubelet's size labels, with their minimum in bytes.
var sizes = []struct {
	above uint64
	label string
}{
	{100 << 30, "GT100GB"},
	{60 << 30, "60GB-100GB"},
	{40 << 30, "40GB-60GB"},
	{30 << 30, "30GB-40GB"},
	{20 << 30, "20GB-30GB"},
	{10 << 30, "10GB-20GB"},
	{5 << 30, "5GB-10GB"},
	{1 << 30, "1GB-5GB"},
	{500 << 20, "500MB-1GB"},
	{100 << 20, "100MB-500MB"},
	{10 << 20, "10MB-100MB"},
	{0, "0-10MB"},
}

// sizeLabel returns the label for a size in bytes. If the size is 0, it is unknown and the label
// N/A.
func sizeLabel(bytes uint64) string {
	for _, s := range sizes {
		if bytes > s.above {
			return s.label
		}
	}
	return "N/A"
}

// policyLabel returns the kubelet's label; every policy except Always and Never counts as
// IfNotPresent.
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
