//go:build linux

package localcri

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// registerMetrics exports the counts of a runtime, which are read at each scrape. If reg is nil,
// nothing is exported.
//
//	nodewright_localcri_sandboxes
//	nodewright_localcri_containers
//	nodewright_localcri_monitors
//	nodewright_localcri_monitor_successors_total  monitors that were replaced
//	nodewright_localcri_records_set_aside_total   damaged records
//	nodewright_localcri_orphans_undone_total      leftovers without a record
//	nodewright_localcri_log_lost_bytes_total      log bytes that could not be written
func registerMetrics(reg prometheus.Registerer, counts func() Counts) error {
	if reg == nil {
		return nil
	}
	return promshare.Register(reg, &counted{counts})
}

// newRefused counts the events that containers and sandboxes have refused, by their phase:
//
//	nodewright_localcri_refused_steps_total
//
// A caller may request what is not possible, such as a second start (event StartAsked). Any other
// refused event is a bug in this package.
func newRefused() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nodewright_localcri_refused_steps_total", Help: "Steps that containers and sandboxes refused, by their phase.",
	}, []string{"from", "event"})
}

// counted exports Counts, all from one moment.
type counted struct{ counts func() Counts }

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nodewright_localcri_"+name, help, nil, nil)
}

var (
	sandboxes      = desc("sandboxes", "Sandboxes that there are, in whatever state.")
	containers     = desc("containers", "Containers that there are, in whatever state.")
	monitors       = desc("monitors", "Monitors that this process is connected with.")
	successors     = desc("monitor_successors_total", "Monitors that ended while they were needed and were replaced.")
	setAside       = desc("records_set_aside_total", "Records that were damaged.")
	metricsOrphans = desc("orphans_undone_total", "Leftovers without a record that were undone.")
	lostLog        = desc("log_lost_bytes_total", "Bytes of containers' logs that no disk took.")
)

func (c *counted) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sandboxes, containers, monitors, successors, setAside, metricsOrphans, lostLog} {
		ch <- d
	}
}

func (c *counted) Collect(ch chan<- prometheus.Metric) {
	now := c.counts()
	gauge := func(d *prometheus.Desc, n int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	count := func(d *prometheus.Desc, n uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	gauge(sandboxes, now.Sandboxes)
	gauge(containers, now.Containers)
	gauge(monitors, now.Monitors)
	count(successors, now.Successors)
	count(setAside, now.SetAside)
	count(metricsOrphans, now.Orphans)
	count(lostLog, now.LostLogBytes)
}
