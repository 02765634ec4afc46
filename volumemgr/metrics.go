package volumemgr

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// The kubelet's metrics of volumes, with its names and buckets, so that its
// dashboards work. Totals are computed when they are collected.

type metrics struct {
	m         *Manager
	volumes   *prometheus.Desc
	duration  *prometheus.HistogramVec
	total     *prometheus.HistogramVec
	measuring *prometheus.HistogramVec

	reconstructed, reconstructErrors prometheus.Counter
	orphans, orphanErrors            prometheus.Gauge
}

// newMetrics creates the metrics and registers them with reg unless it is nil. It returns an
// error if reg has a metric of the same name with other labels.
func newMetrics(reg prometheus.Registerer, m *Manager) (*metrics, error) {
	// The kubelet's buckets, in seconds.
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	met := &metrics{
		m: m,
		volumes: prometheus.NewDesc("volume_manager_total_volumes", "Volumes by state: desired, and mounted or possibly mounted.",
			[]string{"plugin_name", "state"}, nil),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "Duration of an operation on a volume.", Buckets: buckets,
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		total: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "volume_operation_total_seconds", Help: "Time from the first try of an operation to its success.", Buckets: buckets,
		}, []string{"plugin_name", "operation_name"}),
		measuring: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_volume_metric_collection_duration_seconds", Help: "Duration of measuring a volume.",
		}, []string{"metric_source"}),
		reconstructed:     counter("reconstruct_volume_operations_total", "Volumes found that an earlier process left."),
		reconstructErrors: counter("reconstruct_volume_operations_errors_total", "Directories of volumes that were not understood."),
		orphans:           gauge("kubelet_orphan_pod_cleaned_volumes", "Orphaned pods in the last sweep."),
		orphanErrors:      gauge("kubelet_orphan_pod_cleaned_volumes_errors", "Orphaned pods that the last sweep could not remove."),
	}
	return met, promshare.Register(reg, met, met.duration, met.total, met.measuring,
		met.reconstructed, met.reconstructErrors, met.orphans, met.orphanErrors)
}

// operation counts an operation that has ended. The label migrated, for in-tree
// volumes that a CSI driver serves, is always "false" here.
func (met *metrics) operation(plugin, name string, err error, took time.Duration) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	met.duration.WithLabelValues(plugin, name, status, "false").Observe(took.Seconds())
}

// mounted counts a successful set-up. Its duration starts at the first failure, if there was one.
func (met *metrics) mounted(plugin string, firstFailure, now, started time.Time) {
	// Pods wait for the volume from its first attempt, not from its last.
	if !firstFailure.IsZero() {
		started = firstFailure
	}
	met.total.WithLabelValues(plugin, "overall_volume_mount").Observe(now.Sub(started).Seconds())
}

// Describe implements [prometheus.Collector].
func (met *metrics) Describe(out chan<- *prometheus.Desc) { out <- met.volumes }

// Collect implements [prometheus.Collector]. It counts the volumes when it is
// called.
func (met *metrics) Collect(out chan<- prometheus.Metric) {
	type count struct{ desired, actual int }
	counts := map[string]*count{}
	// The lock is not held during sends, which may block on a slow reader.
	met.m.mu.Lock()
	for _, p := range met.m.pods {
		for _, v := range p.volumes {
			plugin := v.label()
			c := counts[plugin]
			if c == nil {
				c = &count{}
				counts[plugin] = c
			}
			if v.desired {
				c.desired++
			}
			if v.has != absent {
				c.actual++
			}
		}
	}
	met.m.mu.Unlock()
	for plugin, c := range counts {
		for state, n := range map[string]int{"desired_state_of_world": c.desired, "actual_state_of_world": c.actual} {
			out <- prometheus.MustNewConstMetric(met.volumes, prometheus.GaugeValue, float64(n), plugin, state)
		}
	}
}
