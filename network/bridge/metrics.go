package bridge

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics are the plugin's metrics. Without a registry they are counted and not exported.
type metrics struct {
	restores  prometheus.Counter
	inUse     prometheus.Gauge
	hostports prometheus.Gauge
}

// newMetrics returns the metrics, registered with reg unless that is nil. Two plugins
// may share a registerer.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		restores: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewright_network_bridge_table_restores_total", Help: "Restores of the nftables table after other programs changed or removed it.",
		}),
		inUse: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodewright_network_bridge_addresses_in_use", Help: "IPv4 addresses of attachments.",
		}),
		hostports: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodewright_network_bridge_hostports", Help: "Host ports of attachments, for each address family.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.restores), promshare.Register(reg, m.inUse), promshare.Register(reg, m.hostports))
}
