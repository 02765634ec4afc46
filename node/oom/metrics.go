package oom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

type metrics struct {
	kills *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		kills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_oom_kills_total", Help: "Processes killed by the OOM killer, by the cause: a cgroup's limit or the node.",
		}, []string{"scope"}),
	}
	for _, scope := range []string{"limit", "node"} {
		m.kills.WithLabelValues(scope)
	}
	return m, promshare.Register(reg, m.kills)
}
