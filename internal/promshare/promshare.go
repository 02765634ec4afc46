// Package promshare registers metrics so that several values of one kind, such as
// two clients of two runtimes, may share a Prometheus registerer: their metrics are
// merged. Without it the second New would fail, since a registerer takes each
// metric once.
package promshare

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c with reg, or adds it to the collector with the same
// metrics that an earlier call registered: see [Merged]. A metric of that name with
// other labels or another help text is an error. Collectors are never unregistered;
// one that was added counts for as long as reg lives.
func Register(reg prometheus.Registerer, c prometheus.Collector) error {
	err := reg.Register(&Merged{members: []prometheus.Collector{c}})
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) {
		return err
	}
	m, ours := already.ExistingCollector.(*Merged)
	if !ours {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members = append(m.members, c)
	return nil
}

// Merged is a collector of several collectors that have the same metrics. Equal
// series become one: counters, gauges and histograms are added up; of points in
// time, of labels of a program and of switches the largest value counts.
type Merged struct {
	mu      sync.Mutex
	members []prometheus.Collector
}

// Describe implements [prometheus.Collector].
func (m *Merged) Describe(ch chan<- *prometheus.Desc) {
	m.mu.Lock()
	first := m.members[0]
	m.mu.Unlock()
	first.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (m *Merged) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	members := m.members[:len(m.members):len(m.members)]
	m.mu.Unlock()
	if len(members) == 1 {
		members[0].Collect(ch)
		return
	}
	var s sum
	for _, c := range members {
		s.add(c)
	}
	for _, key := range s.order {
		ch <- s.series[key]
	}
}
