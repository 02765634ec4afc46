package cgroups

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics use the kubelet's names where it has the same metrics, so that its
// dashboards work, and the prefix nodewright elsewhere.
type metrics struct {
	duration                 *prometheus.HistogramVec // durations by operation: create, update, destroy
	version, nodeMin, lowSum prometheus.Gauge
	stuck                    prometheus.Gauge
}

// newMetrics registers the metrics with reg. If another Manager in the process has registered the
// same ones, both share them. If reg is nil, the metrics count, but are not exported.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_cgroup_manager_duration_seconds", Help: "Duration of an operation on a cgroup.",
		}, []string{"operation_type"}),
		version: gauge("kubelet_cgroup_version", "Version of cgroups on this machine: 1 or 2."),
		nodeMin: gauge("kubelet_memory_qos_node_memory_min_bytes", "Memory that Guaranteed pods request, protected."),
		lowSum:  gauge("kubelet_memory_qos_node_memory_low_bytes", "Memory that Burstable pods request, protected."),
		stuck:   gauge("nodewright_cgroups_stuck_calls", "Calls of the kernel or systemd that did not return in time and still run."),
	}
	return m, promshare.Register(reg, m.duration, m.version, m.nodeMin, m.lowSum, m.stuck)
}

// took observes the duration of an operation, successful or not.
func (m *metrics) took(operation string, start time.Time) {
	m.duration.WithLabelValues(operation).Observe(time.Since(start).Seconds())
}
