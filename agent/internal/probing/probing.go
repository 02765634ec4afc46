// Package probing provides the results of probes for pod statuses and for podruntime.
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

// Published returns the published status of a pod. known is false if it is not known yet.
type Published func(pod *v1.Pod) (st *v1.PodStatus, known bool)

// Apply sets the results of probes in a status. If a container is older than the agent and has no
// result yet, the published status is used. If that is not known, the last status of this process
// or a stored one is used; Refresh reports this as a guess.
func Apply(probes *probe.Manager, before *statusmgr.Manager, published Published, uid types.UID, in *podstatus.Input) {
	previous := func(id string) (ready, started bool) {
		// The published status comes first: a status of this process may be a guess from a time
		// when it was not known.
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

// Refresh updates the results of probes in a status that was just computed for pod. guess reports
// whether a result is a guess: there is no probe result for a container that is older than the
// agent, and the published status is not known.
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
			case !known && started != *c.Started: // without a readiness probe, a container is ready once it has started
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

// Results returns the function by which podruntime reads the results of probes of one type.
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

// userAgent is the user agent of HTTP probes; it has the version of the implemented API.
const userAgent = "kube-probe/1.37"
