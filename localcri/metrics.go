//go:build linux

package localcri

import "github.com/prometheus/client_golang/prometheus"

// newRefusals counts the events that containers and sandboxes have refused, by their phase:
//
//	nodewright_localcri_refused_steps_total
//
// A caller may request what is not possible, such as a second start (event StartAsked). Any other
// refused event is a bug in this package.
func newRefusals() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nodewright_localcri_refused_steps_total", Help: "Steps that containers and sandboxes refused, by their phase.",
	}, []string{"from", "event"})
}
