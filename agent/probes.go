package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/internal/probeperiod"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// probed handles a new result of a probe: the status is updated at once, and the pod's worker does
// the rest. The goroutines of probes call it, for several pods at a time.
func (a *Agent) probed(c probe.Change) {
	a.recordProbe(c)
	switch c.Type {
	case probe.Readiness:
		a.run.results.Lock()
		defer a.run.results.Unlock()
		a.statuses.SetReady(c.Pod.UID, c.ContainerID, c.Result == probe.Success)
		a.showAgain(c.Pod.UID)
		a.workers.Resync(c.Pod.UID) // its sync passes the new status to the parts; other pods may wait for this one
	case probe.Startup:
		a.statuses.SetStarted(c.Pod.UID, c.ContainerID, c.Result == probe.Success)
		a.workers.Resync(c.Pod.UID)
	// The worker has nothing to do after a successful liveness probe.
	case probe.Liveness:
		if c.Result == probe.Failure {
			a.workers.Resync(c.Pod.UID)
		}
	}
}

// setStatus sets a status that was just computed. It first updates the results of probes in it;
// otherwise the status would overwrite a result that came in the meantime.
func (a *Agent) setStatus(pod *v1.Pod, r statusmgr.Report) {
	a.run.results.Lock()
	defer a.run.results.Unlock()
	a.show(pod, r)
}

// runtimeAnswers makes a cheap call of the runtime.
func (a *Agent) runtimeAnswers(ctx context.Context) error {
	_, err := a.cfg.Runtime.Version(ctx, "v1")
	return err
}

// warnOfPeriods records an event about annotated probe periods that have no effect.
func (a *Agent) warnOfPeriods(pod *v1.Pod) {
	if err := probeperiod.Check(pod); err != nil {
		a.events.Event(pod, v1.EventTypeWarning, "InvalidProbePeriod", err.Error())
	}
}
