package kubeapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

type metrics struct {
	preAgent, preRegistration, registration, postRegistration, total prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, name string) (*metrics, error) {
	gauge := func(part, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_node_startup_" + part + "duration_seconds", Help: help})
	}
	m := &metrics{
		preAgent:         gauge("pre_kubelet_", "From the start of the machine to that of the agent, if the agent made the node."),
		preRegistration:  gauge("pre_registration_", "From the start of the agent to the registration of the node it made."),
		registration:     gauge("registration_", "What the registration of the node took, if the agent made it."),
		postRegistration: gauge("post_registration_", "From the registration of the node to its being ready."),
		total:            gauge("", "From the start of the machine to the node being ready, if the agent made it."),
	}
	named := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_node_name", Help: "The node's name; always 1."}, []string{"node"})
	named.WithLabelValues(name).Set(1)
	return m, promshare.Register(reg, m.preAgent, m.preRegistration, m.registration, m.postRegistration, m.total, named)
}

// ready sets all metrics of the start once, if this agent created the Node.
func (m *metrics) ready(s startup, booted, started time.Time) {
	if s.began.IsZero() {
		return
	}
	m.preAgent.Set(started.Sub(booted).Seconds())
	m.preRegistration.Set(s.began.Sub(started).Seconds())
	m.registration.Set(s.ended.Sub(s.began).Seconds())
	m.postRegistration.Set(time.Since(s.ended).Seconds())
	m.total.Set(time.Since(booted).Seconds())
}
