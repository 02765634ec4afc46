package images

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// pluginMetrics has the kubelet's metrics of plugins. A nil *pluginMetrics counts nothing.
type pluginMetrics struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newPluginMetrics returns nil without a registerer. If hash is not "", a further metric has it
// as a label.
func newPluginMetrics(reg prometheus.Registerer, hash string) (*pluginMetrics, error) {
	if reg == nil {
		return nil, nil //nolint:nilnil // a nil *pluginMetrics counts nothing
	}
	m := &pluginMetrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total", Help: "Failed runs of credential provider plugins.",
		}, []string{"plugin_name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_credential_provider_plugin_duration", Help: "Duration of runs of credential provider plugins, in seconds.", Buckets: prometheus.DefBuckets,
		}, []string{"plugin_name"}),
	}
	all := []prometheus.Collector{m.errors, m.duration}
	if hash != "" {
		info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_credential_provider_config_info", Help: "1, with a hash of the configuration of credential providers.",
		}, []string{"hash"})
		info.WithLabelValues(hash).Set(1)
		all = append(all, info)
	}
	return m, promshare.Register(reg, all...)
}

// ran counts one run of a plugin.
func (m *pluginMetrics) ran(plugin string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.duration.WithLabelValues(plugin).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(plugin).Inc()
	}
}
