package nodeagent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// gateMetrics are kubernetes_feature_enabled: which of the kubelet's feature gates
// is done here. The name and the labels are those of k8s.io/component-base; the
// values do not change while the process runs.
func gateMetrics(c *kubeletconfig.Config) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled", Help: "1 for each feature gate of the kubelet that is done as if it were on.",
	}, []string{"name", "stage"})
	for _, gate := range c.Gates() {
		on := 0.0
		if gate.Enabled {
			on = 1
		}
		g.WithLabelValues(gate.Name, gate.Stage).Set(on)
	}
	return g
}
