package podmgr

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/podmeta"
)

// metrics are the kubelet's where it has them.
type metrics struct {
	// desired has a label for static pods; the others have none.
	desired  *prometheus.GaugeVec
	mirrors  prometheus.Gauge
	problems prometheus.Gauge
}

// newMetrics registers the metrics unless reg is nil; they are counted
// either way. An error means that somebody else has a metric of that name.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		desired: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_desired_pods", Help: "Pods that should run.",
		}, []string{"static"}),
		mirrors:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_mirror_pods", Help: "Mirror pods."}),
		problems: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nodewright_manifest_problems", Help: "Manifests that are not in effect."}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.desired), promshare.Register(reg, m.mirrors), promshare.Register(reg, m.problems))
}

// observe counts anew. Manager.mu is held. Counting anew costs little, and never drifts
// from the state as steps would.
func (m *metrics) observe(mgr *Manager) {
	static := 0
	for _, p := range mgr.store.byUID {
		if podmeta.IsStatic(p) {
			static++
		}
	}
	// The values of the label are the kubelet's: "true" or empty.
	m.desired.WithLabelValues("true").Set(float64(static))
	m.desired.WithLabelValues("").Set(float64(len(mgr.store.byUID) - static))
	m.mirrors.Set(float64(len(mgr.store.mirrors)))
	n := 0
	for _, s := range mgr.sources {
		// Waiting pods count as well: they are not in effect either.
		n += len(s.snapshot.Problems) + len(s.refused) + len(s.waiting)
		if s.failure != "" {
			n++
		}
	}
	m.problems.Set(float64(n))
}
