package podmgr

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/podmeta"
)

// The metrics, the kubelet's where it has them. The label is for static pods; the others have
// none. Their values are counted when they are asked for: with each change, all pods would be.
var (
	desiredPods      = prometheus.NewDesc("kubelet_desired_pods", "Pods that should run.", []string{"static"}, nil)
	mirrorPods       = prometheus.NewDesc("kubelet_mirror_pods", "Mirror pods.", nil, nil)
	manifestProblems = prometheus.NewDesc("nodewright_manifest_problems", "Manifests that are not in effect.", nil, nil)
)

// collector shows the metrics of a Manager.
type collector struct{ m *Manager }

// registerMetrics registers the metrics unless reg is nil. An error means that somebody else
// has a metric of that name.
func registerMetrics(reg prometheus.Registerer, m *Manager) error {
	if reg == nil {
		return nil
	}
	return promshare.Register(reg, collector{m})
}

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

// count is how many pods, static ones among them, mirror pods and problems there are.
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
