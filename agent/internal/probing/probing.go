// Package probing has what probes found for those who compute statuses and start
// containers.
package probing

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/grpchealth"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// Apply has a status say what the probes do. Of what they do not know
// yet, since the agent is younger than the container, it says what it said
// before, here or to the API server.
func Apply(probes *probe.Manager, before *statusmgr.Manager, uid types.UID, in *podstatus.Input) {
	previous := func(id string) (ready, started bool) {
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

// Refresh has a status that was computed a moment ago say what readiness probes have
// found since. The pod is the one that it is of.
func Refresh(probes *probe.Manager, pod *v1.Pod, st *v1.PodStatus) {
	news := false
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.State.Running == nil || c.Started == nil || !*c.Started {
				continue
			}
			r, known := probes.Result(probe.Readiness, podstatus.BareID(c.ContainerID))
			if known && r != probe.Unknown && c.Ready != (r == probe.Success) {
				c.Ready, news = r == probe.Success, true
			}
		}
	}
	if news {
		podstatus.SetReadiness(pod, st, time.Now())
	}
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
func GRPC(ctx context.Context, addr, service string) (probe.Outcome, string, error) {
	return grpchealth.Check{Addr: addr, Service: service, UserAgent: userAgent}.Check(ctx)
}

// userAgent is what probes call themselves: the version is that of the
// API whose rules they keep.
const userAgent = "kube-probe/1.37"
