package containergc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Kinds of what is removed.
const (
	container    = "container"
	sandbox      = "sandbox"
	logDirectory = "log_directory"
	logLink      = "log_link"
)

type metrics struct {
	done, undone *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_dead_removed_total", Help: "What dead containers left behind and was removed.",
		}, []string{"kind"}),
		undone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_dead_removal_failures_total", Help: "Removals of what dead containers left behind that failed.",
		}, []string{"kind"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.done), promshare.Register(reg, m.undone))
}

func (m *metrics) removed(kind string) { m.done.WithLabelValues(kind).Inc() }
func (m *metrics) failed(kind string)  { m.undone.WithLabelValues(kind).Inc() }
