package statusmgr

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metrics, by its names.
type metrics struct {
	terminated *prometheus.CounterVec
	sync       prometheus.Histogram
}

// newMetrics makes the metrics and registers them with reg, unless it is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total", Help: "Containers that ended.",
		}, []string{"container_type", "exit_code", "reason"}),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_status_sync_duration_seconds", Help: "From a change of a status to its publication.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 20, 30, 45, 60},
		}),
	}
	return m, promshare.Register(reg, m.terminated, m.sync)
}

// exitLabel returns the label of an exit code. It limits the number of label values: a process has
// 256 exit codes, but a runtime may report any number.
func exitLabel(code int32) string {
	if code < 0 || code > 255 {
		return "other"
	}
	return strconv.Itoa(int(code))
}

// reasonLabel returns the label of a reason. It limits the number of label values, since a runtime
// may report any reason.
func reasonLabel(reason string) string {
	switch reason {
	case "Completed", "Error", "OOMKilled", "ContainerCannotRun", "StartError", "ContainerStatusUnknown":
		return reason
	default:
		return "Other"
	}
}
