package cni

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

type metrics struct {
	kills *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{kills: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nodewright_network_cni_kills_total",
		Help: "Process groups of CNI plugins that were killed, at a deadline or for too much output.",
	}, []string{"verb"})}
	if reg == nil {
		return m, nil
	}
	return m, promshare.Register(reg, m.kills)
}
