// Package promshare registers equal metrics of several values, such as two clients of two
// runtimes, with one Prometheus registerer, and merges the metrics. Without this package
// the second registration would fail, because a registerer accepts each metric once.
package promshare

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers collectors with reg; if reg is nil, it does nothing. If an earlier call has
// registered a collector with the same metrics, Register merges both: see [Merged]. It fails if
// reg has a metric with the same name but different labels or a different help text. The error
// names each such metric. Collectors cannot be unregistered.
func Register(reg prometheus.Registerer, collectors ...prometheus.Collector) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range collectors {
		errs = append(errs, register(reg, c))
	}
	return errors.Join(errs...)
}

func register(reg prometheus.Registerer, c prometheus.Collector) error {
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

// Merged is a collector that merges several collectors with the same metrics. For equal
// series it adds counters, gauges and histograms. For gauges that are times, versions,
// build information or switches, it uses the largest value.
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
