package agent

import (
	"github.com/nodewright/nodewright/agent/local"
)

// Work returns how much of each kind of work is done at a time, and how much may be: all limits of
// the agent over its pods. They follow from what the work costs:
//
//   - A start keeps about one CPU busy, so there are as many as CPUs; a few more on small machines, as
//     it waits for the runtime half the time.
//   - An inspection, a volume operation and a write of a status wait for a disk or another process:
//     their limits keep a burst from overloading those, and are the same on all machines.
//   - A command of a probe starts a process in the runtime, and costs far more than a connection.
//   - Pulls are limited by the configuration alone, and ends not at all.
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
