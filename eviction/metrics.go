package eviction

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics of a Manager, with the kubelet's names where it has them. Labels are signals, limits
// and conditions, so series are few.
type metrics struct {
	evictions, failures *prometheus.CounterVec
	ages                *prometheus.HistogramVec
	pressures           *prometheus.GaugeVec
}

// newMetrics creates the metrics and registers them with Config.Metrics unless it is nil. Series
// of configured thresholds and limits exist from the start, with 0.
func newMetrics(cfg *Config) (*metrics, error) {
	reg := cfg.Metrics
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		evictions: counter("kubelet_evictions", "Pods whose eviction was begun, by the signal or limit it was for.", "eviction_signal"),
		failures:  counter("nodewright_eviction_failures_total", "Evictions that failed or did not end in time.", "eviction_signal"),
		ages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_eviction_stats_age_seconds", Help: "Age of the usage figures when pods were chosen for eviction.",
		}, []string{"eviction_signal"}),
		pressures: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodewright_eviction_pressure", Help: "1 while the node is under pressure.",
		}, []string{"resource"}),
	}
	var labels []string
	for _, t := range cfg.Thresholds {
		labels = append(labels, string(t.Signal))
	}
	if !cfg.IgnoreLimits {
		labels = append(labels, string(rank.EmptyDirLimit), string(rank.PodLimit), string(rank.ContainerLimit))
	}
	for _, l := range labels {
		m.evictions.WithLabelValues(l)
		m.failures.WithLabelValues(l)
	}
	return m, promshare.Register(reg, m.evictions, m.failures, m.ages, m.pressures)
}

// label returns memory, disk or pid.
func label(c v1.NodeConditionType) string {
	return strings.ToLower(strings.TrimSuffix(string(c), "Pressure"))
}

func (m *metrics) evicted(label string)    { m.evictions.WithLabelValues(label).Inc() }
func (m *metrics) killFailed(label string) { m.failures.WithLabelValues(label).Inc() }
func (m *metrics) age(s rank.Signal, d time.Duration) {
	m.ages.WithLabelValues(string(s)).Observe(d.Seconds())
}

func (m *metrics) pressure(c v1.NodeConditionType, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	m.pressures.WithLabelValues(label(c)).Set(v)
}
