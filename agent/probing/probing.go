// Package probing has what probes found for those who compute statuses and start
// containers.
package probing

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
	"github.com/nodewright/nodewright/probe/check/grpchealth"
	"github.com/nodewright/nodewright/statusmgr"
)

// Apply has a status say what the probes do. Of what they do not know
// yet, since the agent is younger than the container, it says what it said
// before.
func Apply(probes *probe.Manager, before *statusmgr.Manager, uid types.UID, in *podstatus.Input) {
	in.Started = func(id string) bool {
		r, known := probes.Result(probe.Startup, id)
		if known && r == probe.Unknown {
			_, started, _ := before.PreviousReady(uid, id)
			return started
		}
		return !known || r == probe.Success
	}
	in.Ready = func(id string) bool {
		r, known := probes.Result(probe.Readiness, id)
		if known && r == probe.Unknown {
			ready, _, _ := before.PreviousReady(uid, id)
			return ready
		}
		return !known || r == probe.Success
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
func GRPC(ctx context.Context, addr, service string) (check.Outcome, string, error) {
	return grpchealth.Check{Addr: addr, Service: service, UserAgent: userAgent}.Check(ctx)
}

// userAgent is what probes call themselves: the version is that of the
// API whose rules they keep.
const userAgent = "kube-probe/1.37"
