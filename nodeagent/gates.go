package nodeagent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// gateMetrics returns kubernetes_feature_enabled: the actual state of the kubelet's feature gates.
// The name and the labels come from k8s.io/component-base; the values are constant.
func gateMetrics(c *kubeletconfig.Config) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled", Help: "1 for each feature gate of the kubelet whose feature is active.",
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
