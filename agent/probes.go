package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/probeperiod"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
	"github.com/nodewright/nodewright/probe/check/grpchealth"
)

// probed is what follows from a probe's new result: what readers see changes
// at once, and what has to be done about it the pod's worker does.
func (a *Agent) probed(c probe.Change) {
	switch c.Type {
	case probe.Readiness:
		a.statuses.SetReady(c.Pod.UID, c.ContainerID, c.Result == probe.Success)
	case probe.Startup:
		a.statuses.SetStarted(c.Pod.UID, c.ContainerID, c.Result == probe.Success)
		a.workers.Resync(c.Pod.UID)
	case probe.Liveness:
		if c.Result == probe.Failure {
			a.workers.Resync(c.Pod.UID)
		}
	}
}

// applyProbes has the status say what the probes do. Of what they do not know
// yet, since the agent is younger than the container, it says what it said
// before.
func (a *Agent) applyProbes(uid types.UID, in *podstatus.Input) {
	in.Started = func(id string) bool {
		r, known := a.probes.Result(probe.Startup, id)
		if known && r == probe.Unknown {
			_, started, _ := a.statuses.PreviousReady(uid, id)
			return started
		}
		return !known || r == probe.Success
	}
	in.Ready = func(id string) bool {
		r, known := a.probes.Result(probe.Readiness, id)
		if known && r == probe.Unknown {
			ready, _, _ := a.statuses.PreviousReady(uid, id)
			return ready
		}
		return !known || r == probe.Success
	}
}

// probeResult is how podruntime asks for the results of probes.
func (a *Agent) probeResult(t probe.Type) func(containerID string) podruntime.ProbeResult {
	return func(id string) podruntime.ProbeResult {
		r, known := a.probes.Result(t, id)
		switch {
		case !known:
			return podruntime.ProbeNone
		case r == probe.Success:
			return podruntime.ProbeSuccess
		case r == probe.Failure:
			return podruntime.ProbeFailure
		}
		return podruntime.ProbeUnknown
	}
}

// grpcHealth makes the checks of gRPC probes.
func grpcHealth(ctx context.Context, addr, service string) (check.Outcome, string, error) {
	return grpchealth.Check{Addr: addr, Service: service, UserAgent: probeUserAgent}.Check(ctx)
}

// probeUserAgent is what probes call themselves: the version is that of the
// API whose rules they keep.
const probeUserAgent = "kube-probe/1.36"

// warnOfPeriods makes an event of periods that have no effect.
func (a *Agent) warnOfPeriods(pod *v1.Pod) {
	if err := probeperiod.Check(pod); err != nil {
		a.events.Event(pod, v1.EventTypeWarning, "InvalidProbePeriod", err.Error())
	}
}
