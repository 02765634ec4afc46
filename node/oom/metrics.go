package oom

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

type metrics struct {
	kills            *prometheus.CounterVec
	missed, unparsed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		kills: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_oom_kills_total", Help: "Processes killed by the OOM killer, by the cause: a cgroup's limit or the node.",
		}, []string{"scope"}),
		missed:   counter("nodewright_oom_log_overwritten_total", "Times that the kernel's log was overwritten before it was read."),
		unparsed: counter("nodewright_oom_log_unparsed_total", "Records of the kernel's log that could not be read."),
	}
	for _, scope := range []string{"limit", "node"} {
		m.kills.WithLabelValues(scope)
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.kills), promshare.Register(reg, m.missed), promshare.Register(reg, m.unparsed))
}
