package agent

import (
	"github.com/nodewright/nodewright/agent/local"
)

// Work returns, for each kind of work, how much is in progress, how much waits, and the limit. The
// limits follow from the cost of the work:
//
//   - A start keeps about one CPU busy, so the limit is the number of CPUs. It is higher on small
//     machines, since a start waits for the runtime half the time.
//   - An inspection, a volume operation and a write of a status wait for a disk or another process:
//     their limits keep a burst from overloading the disk or the process, and are the same on all
//     machines.
//   - A command of a probe starts a process in the runtime, and costs far more than a connection.
//   - Only the configuration limits pulls. The ends of pods have no limit.
func (a *Agent) Work() []local.NodeWork {
	var out []local.NodeWork
	add := func(kind string, running, limit, waiting int) {
		out = append(out, local.NodeWork{Kind: kind, Running: running, Limit: limit, Waiting: waiting})
	}
	of := func(kind string, load func() (running, limit, waiting int)) {
		running, limit, waiting := load()
		add(kind, running, limit, waiting)
	}
	of("starts", a.workers.Starts)
	of("pulls", a.images.Load)
	if v, ok := a.volumes.(interface {
		Operations() (running, limit, waiting int)
	}); ok {
		of("volumes", v.Operations)
	}
	of("probes", func() (int, int, int) { return a.probes.Checks(false) })
	of("exec probes", func() (int, int, int) { return a.probes.Checks(true) })
	of("inspections", a.pleg.Inspections)
	of("status writes", a.statuses.Writes)
	add("ends", a.workers.Ends(), 0, 0)
	return out
}
