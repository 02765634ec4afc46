package pleg

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics of a Manager, with the kubelet's names where it has them.
type metrics struct {
	duration, interval, pod, latency prometheus.Histogram
	lastSeen                         prometheus.Gauge
	streams, streamErrors            prometheus.Counter

	round uint64 // number of the current relist; guarded by Manager.mu
}

// running computes the numbers of running pods and containers at each scrape, so that they are
// current between two relists.
type running struct{ m *Manager }

var (
	runningPods       = prometheus.NewDesc("kubelet_running_pods", "Pods with a running sandbox.", nil, nil)
	runningContainers = prometheus.NewDesc("kubelet_running_containers", "Containers by state.", []string{"container_state"}, nil)
)

// Describe implements prometheus.Collector.
func (running) Describe(ch chan<- *prometheus.Desc) {
	ch <- runningPods
	ch <- runningContainers
}

// Collect implements prometheus.Collector.
func (c running) Collect(ch chan<- prometheus.Metric) {
	pods, containers := 0, [4]int{} // by observed.State
	c.m.mu.Lock()
	for _, r := range c.m.records {
		items := r.items
		if r.pod == nil && r.hint != nil {
			items = itemsOf(r.hint)
		}
		ready := false
		for _, it := range items {
			if it.sandbox {
				ready = ready || it.state == observed.Running
			} else {
				containers[it.state&3]++ // the mask keeps a state that a later version may add within range
			}
		}
		if ready {
			pods++
		}
	}
	c.m.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(runningPods, prometheus.GaugeValue, float64(pods))
	for s, n := range containers {
		ch <- prometheus.MustNewConstMetric(runningContainers, prometheus.GaugeValue, float64(n), observed.State(s).String())
	}
}

// newMetrics creates the metrics of a manager and registers them with reg unless it is nil.
func newMetrics(reg prometheus.Registerer, manager *Manager) (*metrics, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		duration:     histogram("kubelet_pleg_relist_duration_seconds", "Duration of a relist."),
		interval:     histogram("kubelet_pleg_relist_interval_seconds", "Time between relists."),
		pod:          histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of the inspection of one pod."),
		latency:      histogram("kubelet_evented_pleg_connection_latency_seconds", "From an event's creation to its arrival."),
		lastSeen:     gauge("kubelet_pleg_last_seen_seconds", "Unix time of the last relist that succeeded."),
		streams:      counter("kubelet_evented_pleg_connection_success_count", "Event streams opened."),
		streamErrors: counter("kubelet_evented_pleg_connection_error_count", "Event streams that ended."),
	}
	return m, promshare.Register(reg, m.duration, m.interval, m.pod, m.latency, m.lastSeen, m.streams, m.streamErrors, running{manager})
}
