// Package probing has what probes found for those who compute statuses and start
// containers.
package probing

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
	"github.com/nodewright/nodewright/probe/check/grpchealth"
	"github.com/nodewright/nodewright/statusmgr"
)

// Published returns the status in which others see a pod, and whether that is known.
type Published func(pod *v1.Pod) (st *v1.PodStatus, known bool)

// Apply has a status say what the probes do. Of what they do not know yet, since the agent
// is younger than the container, it says what others see. As long as that is not known it
// says what the last status here does, or what the pod was remembered with; Refresh reports
// that as a guess.
func Apply(probes *probe.Manager, before *statusmgr.Manager, published Published, uid types.UID, in *podstatus.Input) {
	previous := func(id string) (ready, started bool) {
		// First, as a status of this process may be a guess of the time when it was not known.
		if st, known := published(in.Pod); known {
			if ready, started, runs := statusmgr.ReadyIn(st, id); runs {
				return ready, started
			}
		}
		ready, started, known := before.PreviousReady(uid, id)
		if !known {
			ready, started, _ = statusmgr.ReadyIn(&in.Pod.Status, id)
		}
		return ready, started
	}
	in.Started = func(id string) bool {
		r, known := probes.Result(probe.Startup, id)
		if known && r == probe.Unknown {
			_, started := previous(id)
			return started
		}
		return !known || r == probe.Success
	}
	in.Ready = func(id string) bool {
		r, known := probes.Result(probe.Readiness, id)
		if known && r == probe.Unknown {
			ready, _ := previous(id)
			return ready
		}
		return !known || r == probe.Success
	}
}

// Refresh has a status that was computed a moment ago say what probes have found since. The
// pod is the one that it is of. guess reports whether the status is a guess, as the probes do
// not know of a container that is older than the agent, nor does anybody what others see.
func Refresh(probes *probe.Manager, published Published, pod *v1.Pod, st *v1.PodStatus) (guess bool) {
	news := false
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			id := podstatus.BareID(c.ContainerID)
			if c.State.Running == nil || c.Started == nil {
				continue
			}
			ready, started := c.Ready, *c.Started
			if probes.Unsure(id) {
				shown, known := published(pod)
				guess = guess || !known
				if wasReady, wasStarted, runs := statusmgr.ReadyIn(shown, id); runs {
					ready, started = wasReady, wasStarted
				}
			}
			if r, known := probes.Result(probe.Startup, id); known && r != probe.Unknown {
				started = r == probe.Success
			}
			switch r, known := probes.Result(probe.Readiness, id); {
			case known && r != probe.Unknown:
				ready = r == probe.Success
			case !known && started != *c.Started: // without a probe it is ready once it has started
				ready = started
			}
			ready = ready && started // KEP-950
			if ready != c.Ready || started != *c.Started {
				c.Ready, c.Started, news = ready, &started, true
			}
		}
	}
	if news {
		podstatus.SetReadiness(pod, st, time.Now())
	}
	return guess
}

// Results is how podruntime asks for the results of probes of one type.
func Results(probes *probe.Manager, t probe.Type) func(containerID string) podruntime.ProbeResult {
	return func(id string) podruntime.ProbeResult {
		r, known := probes.Result(t, id)
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

// GRPC makes the checks of gRPC probes.
func GRPC(ctx context.Context, addr, service string) (check.Outcome, string, error) {
	return grpchealth.Check{Addr: addr, Service: service, UserAgent: userAgent}.Check(ctx)
}

// userAgent is what probes call themselves: the version is that of the
// API whose rules they keep.
const userAgent = "kube-probe/1.37"
