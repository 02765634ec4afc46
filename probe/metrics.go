package probe

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/probe/check"
)

// metrics has the kubelet's metrics of probes and one of our own. Durations include failures.
// Instances of a container share their series.
type metrics struct {
	// total and duration are metrics of the kubelet.
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec

	// late is the delay of checks that waited for a slot.
	late prometheus.Histogram

	// mu guards uses.
	mu   sync.Mutex
	uses map[[4]string]int // number of probes with the same duration series, by its labels: pods of one name share it
}

// newMetrics makes the metrics, and registers them unless reg is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		uses: map[[4]string]int{},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "Checks of containers by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "Duration of checks, with any result.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
		late: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nodewright_probe_lateness_seconds", Help: "Delay between the due time of a check and its start.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60},
		}),
	}
	return m, promshare.Register(reg, m.total, m.duration, m.late)
}

// series has the metrics of one probe.
type series struct {
	m        *metrics
	labels   [4]string // labels of duration
	uid      string
	duration prometheus.Observer
	counters [len(resultLabels)]prometheus.Counter
}

// resultLabels are the values of the label result, in the order of
// series.counters.
var resultLabels = [...]string{"successful", "failed", "unknown"}

// add creates the series of a probe. The labels come from the current version of the pod; remove
// uses the same labels.
func (m *metrics) add(p *prober) *series {
	pod := p.c.pod.pod
	s := &series{m: m, labels: [4]string{p.t.String(), p.c.spec.Name, pod.Name, pod.Namespace}, uid: string(pod.UID)}
	m.mu.Lock()
	m.uses[s.labels]++
	m.mu.Unlock()
	s.duration = m.duration.WithLabelValues(s.labels[:]...)
	return s
}

// remove deletes a probe's series. The series of its duration stays while another pod of the same
// name, such as the next pod of a StatefulSet, uses it.
func (m *metrics) remove(s *series) {
	for _, r := range resultLabels {
		m.total.DeleteLabelValues(s.labels[0], r, s.labels[1], s.labels[2], s.labels[3], s.uid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uses[s.labels]--; m.uses[s.labels] == 0 {
		delete(m.uses, s.labels)
		m.duration.DeleteLabelValues(s.labels[:]...)
	}
}

// observe counts one round. Counters are made when they are first needed: most
// probes never fail.
func (s *series) observe(r check.Round) {
	i := 2
	switch {
	// The index stays at "unknown".
	case r.Err != nil:
	case r.Outcome == check.Success || r.Outcome == check.Warning:
		i = 0
	default:
		i = 1
	}
	if s.counters[i] == nil {
		s.counters[i] = s.m.total.WithLabelValues(s.labels[0], resultLabels[i], s.labels[1], s.labels[2], s.labels[3], s.uid)
	}
	s.counters[i].Inc()
	s.duration.Observe(r.Took.Seconds())
}
