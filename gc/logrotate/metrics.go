package logrotate

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the counters of a Manager. dropped is in bytes.
type metrics struct {
	rotations                *prometheus.CounterVec
	looks, dropped, unpacked prometheus.Counter
}

// newMetrics creates the metrics and registers them unless reg is nil. It returns an error if
// reg has another metric of the same name.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		rotations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_log_rotations_total", Help: "Rotations of container logs.",
		}, []string{"result"}),
		looks:    counter("nodewright_log_looks_total", "Looks at the size of a container log."),
		dropped:  counter("nodewright_log_dropped_bytes_total", "Bytes of rotated logs that were removed."),
		unpacked: counter("nodewright_log_compression_failures_total", "Rotated logs that could not be compressed."),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.rotations), promshare.Register(reg, m.looks), promshare.Register(reg, m.dropped), promshare.Register(reg, m.unpacked))
}
