package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/probeperiod"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// probed is what follows from a probe's new result: what readers see changes at
// once, and what has to be done about it the pod's worker does. It is called by the
// goroutines of probes, of many pods at a time.
func (a *Agent) probed(c probe.Change) {
	switch c.Type {
	case probe.Readiness:
		a.run.results.Lock()
		defer a.run.results.Unlock()
		a.statuses.SetReady(c.Pod.UID, c.ContainerID, c.Result == probe.Success)
		a.showAgain(c.Pod.UID)
		a.workers.Resync(c.Pod.UID) // parts see the status there, for those that wait for this pod
	case probe.Startup:
		a.statuses.SetStarted(c.Pod.UID, c.ContainerID, c.Result == probe.Success)
		a.workers.Resync(c.Pod.UID)
	// A liveness probe that succeeds changes nothing that the worker would do.
	case probe.Liveness:
		if c.Result == probe.Failure {
			a.workers.Resync(c.Pod.UID)
		}
	}
}

// setStatus sets a status that was computed a moment ago. A result that came meanwhile
// has been set already, and nobody would set it again.
func (a *Agent) setStatus(pod *v1.Pod, r statusmgr.Report) {
	a.run.results.Lock()
	defer a.run.results.Unlock()
	a.show(pod, r)
}

// runtimeAnswers asks the runtime something that costs it nothing.
func (a *Agent) runtimeAnswers(ctx context.Context) error {
	_, err := a.cfg.Runtime.Version(ctx, "v1")
	return err
}

// warnOfPeriods makes an event of periods that have no effect.
func (a *Agent) warnOfPeriods(pod *v1.Pod) {
	if err := probeperiod.Check(pod); err != nil {
		a.events.Event(pod, v1.EventTypeWarning, "InvalidProbePeriod", err.Error())
	}
}
