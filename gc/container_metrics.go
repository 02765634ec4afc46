package gc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Kinds of what is removed: values of the metrics' label, and words in the log.
const (
	container    = "container"
	sandbox      = "sandbox"
	logDirectory = "log_directory"
	logLink      = "log_link"
)

// containerMetrics counts removals by kind. Its methods may be called from any goroutine, also from
// one whose caller has given up waiting for the disk.
type containerMetrics struct {
	done, undone *prometheus.CounterVec
}

// newContainerMetrics registers the metrics unless reg is nil; they count either way. An error means
// that reg has another metric of the same name.
func newContainerMetrics(reg prometheus.Registerer) (*containerMetrics, error) {
	m := &containerMetrics{
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

func (m *containerMetrics) removed(kind string) { m.done.WithLabelValues(kind).Inc() }
func (m *containerMetrics) failed(kind string)  { m.undone.WithLabelValues(kind).Inc() }
