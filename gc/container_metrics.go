package gc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Kinds of removed items: values of the metrics' label, and words in the log.
const (
	container    = "container"
	sandbox      = "sandbox"
	logDirectory = "log_directory"
	logLink      = "log_link"
)

// containerMetrics counts removals by kind. Its methods may be called from any goroutine.
type containerMetrics struct {
	done, undone *prometheus.CounterVec
}

// newContainerMetrics creates the metrics and registers them unless reg is nil. It returns an
// error if reg has another metric of the same name.
func newContainerMetrics(reg prometheus.Registerer) (*containerMetrics, error) {
	m := &containerMetrics{
		done: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_dead_removed_total", Help: "Removed dead containers, sandboxes, log directories and links.",
		}, []string{"kind"}),
		undone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_dead_removal_failures_total", Help: "Failed removals of dead containers, sandboxes, log directories and links.",
		}, []string{"kind"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.done), promshare.Register(reg, m.undone))
}

func (m *containerMetrics) removed(kind string) { m.done.WithLabelValues(kind).Inc() }
func (m *containerMetrics) failed(kind string)  { m.undone.WithLabelValues(kind).Inc() }
