package podmgr

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/podmeta"
)

// The metrics, with the kubelet's names where it has them. The label is set for static pods.
// Values are computed at each scrape.
var (
	desiredPods      = prometheus.NewDesc("kubelet_desired_pods", "Pods that should run.", []string{"static"}, nil)
	mirrorPods       = prometheus.NewDesc("kubelet_mirror_pods", "Mirror pods.", nil, nil)
	manifestProblems = prometheus.NewDesc("nodewright_manifest_problems", "Manifests that are not in effect.", nil, nil)
)

// collector exports the metrics of a Manager.
type collector struct{ m *Manager }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- desiredPods
	ch <- mirrorPods
	ch <- manifestProblems
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	pods, static, mirrors, problems := c.m.count()
	for _, v := range []struct {
		desc   *prometheus.Desc
		value  int
		labels []string
	}{
		{desiredPods, static, []string{"true"}}, // the values of the label are the kubelet's: "true" or empty
		{desiredPods, pods - static, []string{""}},
		{mirrorPods, mirrors, nil},
		{manifestProblems, problems, nil},
	} {
		ch <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, float64(v.value), v.labels...)
	}
}

// count returns the number of pods, of static pods among them, of mirror pods and of problems.
func (m *Manager) count() (pods, static, mirrors, problems int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.store.byUID {
		if podmeta.IsStatic(p) {
			static++
		}
	}
	for _, s := range m.sources {
		// Waiting pods count as well: they are not in effect either.
		problems += len(s.snapshot.Problems) + len(s.refused) + len(s.waiting)
		if s.failure != "" {
			problems++
		}
	}
	return len(m.store.byUID), static, len(m.store.mirrors), problems
}
