package pluginmgr

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metric of plugins.
type metrics struct{ total *prometheus.GaugeVec }

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "plugin_manager_total_plugins", Help: "Plugins that are there (desired) and registered (actual).",
	}, []string{"socket_path", "state"})}
	return m, promshare.Register(reg, m.total)
}

func (m *metrics) forget(path string) {
	m.total.DeletePartialMatch(prometheus.Labels{"socket_path": path})
}
