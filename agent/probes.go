package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// probeResult tells podruntime of a probe's result.
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

// hostIP is where pods in the node's network are looked for.
func hostIP(n *Node) string {
	if len(n.IPs) == 0 {
		return ""
	}
	return n.IPs[0]
}

// annotationProbePeriod gives a probe a period that the API has no room for:
// probe-period.nodewright.io/<type>.<container>: "250ms", the type in lower
// case.
const annotationProbePeriod = "probe-period.nodewright.io/"

// minProbePeriod keeps a probe from being all that a node does.
const minProbePeriod = 10 * time.Millisecond

// adjustProbe applies the pod's own wishes to a probe's timing. One that is
// wrong has no effect; checkProbePeriods tells of it.
func adjustProbe(pod *v1.Pod, c *v1.Container, t probe.Type, timing *probe.Timing) {
	if v, ok := pod.Annotations[annotationProbePeriod+strings.ToLower(t.String())+"."+c.Name]; ok {
		if d, err := probePeriod(v); err == nil {
			timing.Period = d
		}
	}
}

func probePeriod(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < minProbePeriod {
		return 0, fmt.Errorf("%q: want a duration of %v or more, such as 250ms", v, minProbePeriod)
	}
	return d, nil
}

// checkProbePeriods tells what is wrong with the periods in a pod's
// annotations.
func checkProbePeriods(pod *v1.Pod) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		of, ok := strings.CutPrefix(key, annotationProbePeriod)
		if !ok {
			continue
		}
		typ, name, _ := strings.Cut(of, ".")
		known := slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c v1.Container) bool {
			return c.Name == name && (typ == "startup" && c.StartupProbe != nil || typ == "readiness" && c.ReadinessProbe != nil || typ == "liveness" && c.LivenessProbe != nil)
		})
		if !known {
			errs = append(errs, fmt.Errorf("metadata.annotations[%s]: no such probe; want startup, readiness or liveness, a dot, and a container that has it", key))
		} else if _, err := probePeriod(pod.Annotations[key]); err != nil {
			errs = append(errs, fmt.Errorf("metadata.annotations[%s]: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// warnOfPeriods makes an event of periods that have no effect.
func (a *Agent) warnOfPeriods(pod *v1.Pod) {
	if err := checkProbePeriods(pod); err != nil {
		a.events.Event(pod, v1.EventTypeWarning, "InvalidProbePeriod", err.Error())
	}
}
