// Package netmetrics exports metrics of a network.Network.
//
//	m, err := netmetrics.New(registry)
//	...
//	n, err := network.New(network.Config{Observer: m, ...})
//	...
//	err = m.Add(n.Counts)
//
// It is a separate package so that programs without it do not depend on Prometheus.
//
//	nodewright_network_operation_seconds{operation}    set_up_pod, tear_down_pod, check, status, gc
//	nodewright_network_operation_errors_total{operation,code}
//	nodewright_network_attachments{state}              planned, attached, lost, detaching, damaged
//	nodewright_network_retries_pending                 of tear_down_pod
//	nodewright_network_hung_calls                      of plugins
//	nodewright_network_plugin_kills_total              of plugins that outlived their agent
//
// The number of label values is limited: operations and states come from package network; a code
// that it does not name counts as Unknown.
package netmetrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/network"
)

// seconds are the histogram buckets: from an in-memory network to the longest deadline.
var seconds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}

// Metrics are the metrics of a network. The methods may be called from any goroutine.
type Metrics struct {
	reg    prometheus.Registerer
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
}

var _ network.Observer = (*Metrics)(nil)

// New registers new Metrics. If reg is nil they are not exported.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		reg: reg,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nodewright_network_operation_seconds", Help: "Time that operations of pod networks took.", Buckets: seconds,
		}, []string{"operation"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_network_operation_errors_total", Help: "Operations of pod networks that failed, by the error's code.",
		}, []string{"operation", "code"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.took), promshare.Register(reg, m.failed))
}

// Observe records a finished operation.
func (m *Metrics) Observe(op string, took time.Duration, code network.Code) {
	m.took.WithLabelValues(op).Observe(took.Seconds())
	if code == network.OK {
		return
	}
	switch code {
	case network.Canceled, network.InvalidArgument, network.DeadlineExceeded, network.AlreadyExists,
		network.ResourceExhausted, network.FailedPrecondition, network.Unavailable:
	default:
		code = network.Unknown // a plugin may have sent any code
	}
	m.failed.WithLabelValues(op, code.String()).Inc()
}

// Add exports the counts of a network. They are read at each scrape.
func (m *Metrics) Add(counts func() network.Counts) error {
	if m.reg == nil {
		return nil
	}
	return promshare.Register(m.reg, &counted{counts: counts})
}

// counted exports Counts; all values of a scrape are from the same moment.
type counted struct {
	counts func() network.Counts
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nodewright_network_"+name, help, labels, nil)
}

var (
	states  = desc("attachments", "Pods with a network, by its state.", "state")
	retries = desc("retries_pending", "Pods whose network could not be taken back and is tried again later.")
	hung    = desc("hung_calls", "Calls of network plugins that did not return at their deadline.")
	kills   = desc("plugin_kills_total", "Processes of network plugins that outlived their agent and were killed.")
)

func (c *counted) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{states, retries, hung, kills} {
		ch <- d
	}
}

func (c *counted) Collect(ch chan<- prometheus.Metric) {
	now := c.counts()
	for s, n := range now.States {
		ch <- prometheus.MustNewConstMetric(states, prometheus.GaugeValue, float64(n), network.State(s).String())
	}
	ch <- prometheus.MustNewConstMetric(retries, prometheus.GaugeValue, float64(now.Retries))
	ch <- prometheus.MustNewConstMetric(hung, prometheus.GaugeValue, float64(now.Hung))
	ch <- prometheus.MustNewConstMetric(kills, prometheus.CounterValue, float64(now.Kills))
}
