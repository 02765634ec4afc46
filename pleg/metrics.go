package pleg

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics are the kubelet's where it has them.
type metrics struct {
	duration, interval, pod, latency prometheus.Histogram
	lastSeen, pods                   prometheus.Gauge
	containers                       [4]prometheus.Gauge // by observed.State
	streams, streamErrors, missed    prometheus.Counter

	round uint64 // of relists; guarded by Manager.mu
}

// counts are the numbers of one list.
type counts struct {
	pods       int
	containers [4]int // by observed.State
}

func (n *counts) add(l *observed.Listed) {
	for i := range l.Sandboxes {
		if l.Sandboxes[i].State == observed.Running {
			n.pods++
			break
		}
	}
	for i := range l.Containers {
		// The mask keeps a state that a later version may add from being out of
		// range.
		n.containers[l.Containers[i].State&3]++
	}
}

// show sets all gauges, also those that are 0: a state without containers must not
// keep its last count.
func (m *metrics) show(n counts) {
	m.pods.Set(float64(n.pods))
	for state, g := range m.containers {
		g.Set(float64(n.containers[state]))
	}
}

// newMetrics makes the metrics and registers them with reg; nil is nowhere.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	containers := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_running_containers", Help: "Containers by state.",
	}, []string{"container_state"})
	m := &metrics{
		duration:     histogram("kubelet_pleg_relist_duration_seconds", "Duration of a relist."),
		interval:     histogram("kubelet_pleg_relist_interval_seconds", "Time between relists."),
		pod:          histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of the inspection of one pod."),
		latency:      histogram("kubelet_evented_pleg_connection_latency_seconds", "From an event's creation to its arrival."),
		lastSeen:     gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last relist that succeeded."),
		pods:         gauge("kubelet_running_pods", "Pods with a running sandbox."),
		streams:      counter("kubelet_evented_pleg_connection_success_count", "Event streams opened."),
		streamErrors: counter("kubelet_evented_pleg_connection_error_count", "Event streams that ended."),
		missed:       counter("nodewright_pleg_missed_changes_total", "Changes that a relist found and no event had told of."),
	}
	for s := range m.containers {
		m.containers[s] = containers.WithLabelValues(observed.State(s).String())
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.duration, m.interval, m.pod, m.latency, m.lastSeen, m.pods, m.streams, m.streamErrors, m.missed, containers,
	} {
		errs = append(errs, promshare.Register(reg, c))
	}
	return m, errors.Join(errs...)
}
