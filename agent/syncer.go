package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/volumemgr"
)

// syncer is what the pod workers call: one step of one pod's life. Calls for
// one pod never overlap; those for different pods run side by side.
type syncer struct{ *Agent }

// orphanGraceSeconds is what a pod gets to end that only the runtime knows
// (the kubelet's value).
const orphanGraceSeconds = 1

// SyncPod makes the runtime's state of the pod what its spec says, once.
func (a syncer) SyncPod(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
	pod := w.Pod
	obs, err := a.pleg.GetNewerThan(ctx, pod.UID, w.NewerThan)
	if err != nil {
		return podworker.Outcome{}, fmt.Errorf("runtime status: %w", err)
	}
	if a.grants.learned(pod.UID, obs) {
		a.requestCleanup()
	}
	pod = a.grants.of(pod)
	status := a.status(ctx, pod, obs, false)
	if a.pastDeadline(pod, &status) {
		a.events.Event(pod, v1.EventTypeNormal, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
		status.Phase, status.Reason = v1.PodFailed, "DeadlineExceeded"
		status.Message = "Pod was active on the node longer than the specified deadline"
	}
	a.statuses.Set(pod, status)
	if podmeta.IsTerminal(status.Phase) {
		return podworker.Outcome{Terminal: true}, nil
	}

	a.mirror(pod)
	if err := os.MkdirAll(a.podDir(pod.UID), 0o750); err != nil {
		a.events.Event(pod, v1.EventTypeWarning, "Failed", "error making pod data directories: "+err.Error())
		return podworker.Outcome{}, fmt.Errorf("pod directory: %w", err)
	}
	mounts, err := a.volumes.Mount(ctx, pod)
	if err != nil {
		return podworker.Outcome{}, &reasonError{"FailedMount", fmt.Errorf("mount volumes: %w", err)}
	}

	if err := a.ensureCgroup(ctx, pod); err != nil {
		return podworker.Outcome{}, &reasonError{reasonPodCgroup, fmt.Errorf("pod cgroup: %w", err)}
	}
	if err := a.placement.ready(ctx, pod.UID, obs); err != nil {
		return podworker.Outcome{}, &reasonError{"PlacementNotReady", err}
	}
	if err := a.prepareClaims(ctx, pod); err != nil {
		return podworker.Outcome{}, err
	}
	in, err := a.input(ctx, pod, obs, mounts)
	if err != nil {
		if ctx.Err() == nil {
			a.events.Event(pod, v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		}
		return podworker.Outcome{}, &reasonError{podspec.ReasonCreateSandbox, err}
	}
	release := a.pleg.Hold(pod.UID)
	req := podruntime.Request{
		Spec: in, Observed: obs, Startup: a.probeResult(probe.Startup), Liveness: a.probeResult(probe.Liveness),
	}
	res := a.runtime.Sync(ctx, req)
	news := a.resizing(pod, req, &res)
	if err = res.Err(); err != nil {
		err = a.networkNotReady(ctx, pod, err)
	}
	if news || err != nil {
		// Why a container did not start shows in the status at once.
		a.statuses.Set(pod, a.status(ctx, pod, obs, false))
	}
	after := func() {
		if res.Changed() {
			a.pleg.Refresh(pod.UID)
		}
		release()
		if res.Resizes && res.Changed() {
			a.workers.Resync(pod.UID) // the runtime tells nobody of it
		}
	}
	return podworker.Outcome{Acted: res.Changed(), After: after}, err
}

// SyncTerminatingPod ends the pod's containers and proves that they ended.
func (a syncer) SyncTerminatingPod(ctx context.Context, w podworker.Work) error {
	pod := w.Pod
	obs, err := a.pleg.GetNewerThan(ctx, pod.UID, w.NewerThan)
	if err != nil {
		return fmt.Errorf("runtime status: %w", err)
	}
	publish := func(obs *observed.Pod, final bool) {
		status := a.status(ctx, pod, obs, final)
		for _, fn := range w.StatusFuncs {
			fn(&status)
		}
		a.statuses.Set(pod, status)
	}
	a.probes.EndLivenessAndStartup(pod.UID)
	publish(obs, false)
	defer a.pleg.Hold(pod.UID)()
	if err := a.runtime.Kill(ctx, pod, obs, w.GracePeriodSeconds); err != nil {
		if ctx.Err() == nil {
			a.events.Event(pod, v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
		}
		return &reasonError{"FailedKillPod", fmt.Errorf("kill pod: %w", err)}
	}
	obs, err = a.pleg.GetNewerThan(ctx, pod.UID, time.Now())
	if err != nil {
		return fmt.Errorf("runtime status after the kill: %w", err)
	}
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.State == observed.Running {
			return fmt.Errorf("container %s (%s) runs although the runtime said that it stopped", c.Name, c.ID)
		}
	}
	if err := a.unprepareClaims(ctx, pod); err != nil {
		return err
	}
	publish(obs, true)
	return nil
}

// SyncTerminatingRuntimePod ends and removes what the runtime holds of a pod
// that nobody wants.
func (a syncer) SyncTerminatingRuntimePod(ctx context.Context, w podworker.Work) error {
	uid := w.RuntimePod.UID
	obs, err := a.pleg.GetNewerThan(ctx, uid, w.NewerThan)
	if err != nil {
		return fmt.Errorf("runtime status: %w", err)
	}
	grace := int64(orphanGraceSeconds)
	if err := a.runtime.Kill(ctx, nil, obs, &grace); err != nil {
		return &reasonError{"FailedKillPod", fmt.Errorf("kill orphaned pod: %w", err)}
	}
	if err := a.removeFromRuntime(ctx, obs); err != nil {
		return err
	}
	a.unplace(ctx, uid)
	if err := a.destroyCgroup(ctx, uid); err != nil {
		return &reasonError{"FailedKillPod", fmt.Errorf("cgroup of an orphaned pod: %w", err)}
	}
	a.requestCleanup() // its directories are orphans now
	return nil
}

// SyncTerminatedPod takes down what is left of a pod whose containers ended.
// Of one that ended by itself the containers stay, for their logs, until the
// pod goes.
func (a syncer) SyncTerminatedPod(ctx context.Context, w podworker.Work) error {
	pod := w.Pod
	// That everything has stopped was proven by what is known already.
	obs, err := a.pleg.GetNewerThan(ctx, pod.UID, time.Time{})
	if err != nil {
		return fmt.Errorf("runtime status: %w", err)
	}
	defer a.pleg.Hold(pod.UID)()
	status := a.status(ctx, pod, obs, true)
	for _, fn := range w.StatusFuncs {
		fn(&status)
	}
	a.statuses.Set(pod, status)
	a.probes.Remove(pod.UID)
	a.forgetDeadline(pod.UID)
	a.grants.settle(pod.UID)
	a.grants.finish(pod.UID)
	a.unplace(ctx, pod.UID)

	gone := pod.DeletionTimestamp != nil || w.Evicted || !a.wanted(pod.UID)
	if gone {
		if err := a.removeFromRuntime(ctx, obs); err != nil {
			return err
		}
	}
	takeDown := a.volumes.Unmount
	if gone {
		takeDown = a.volumes.Remove
	}
	if err := takeDown(ctx, pod.UID); err != nil {
		return &reasonError{"FailedUnmount", fmt.Errorf("unmount volumes: %w", err)}
	}
	if err := a.destroyCgroup(ctx, pod.UID); err != nil {
		return &reasonError{"FailedKillPod", fmt.Errorf("pod cgroup: %w", err)}
	}
	a.statuses.Terminate(pod)
	a.requestCleanup() // the worker's record can go
	return nil
}

// removeFromRuntime removes every container, sandbox and log of a pod whose
// containers have stopped.
func (a *Agent) removeFromRuntime(ctx context.Context, obs *observed.Pod) error {
	if err := a.runtime.Remove(ctx, obs); err != nil {
		return &reasonError{"FailedRemovePod", fmt.Errorf("remove pod: %w", err)}
	}
	a.runtime.Forget(obs.UID)
	a.pleg.Refresh(obs.UID)
	return nil
}

// wanted tells whether any source still wants the pod.
func (a *Agent) wanted(uid types.UID) bool {
	_, ok := a.pods.Pod(uid)
	return ok
}

// asShown is a pod with the status that its source shows now: conditions of
// others, which readiness gates wait for, change without the spec.
func (a *Agent) asShown(pod *v1.Pod) *v1.Pod {
	shown, ok := a.pods.Pod(pod.UID)
	if !ok || shown == pod {
		return pod
	}
	now := *pod
	now.Status = shown.Status
	return &now
}

// status computes the pod's status from what the runtime shows. Its probes are
// told of that first.
func (a *Agent) status(ctx context.Context, pod *v1.Pod, obs *observed.Pod, final bool) v1.PodStatus {
	a.probes.Observe(pod, obs)
	in := podstatus.Input{
		Pod:      a.asShown(pod),
		Observed: a.runtime.WithMessages(pod, a.podDir(pod.UID), obs),
		Runtime:  a.name.get(ctx),
		Terminal: final,
		HostIPs:  a.cfg.Node.IPs,
		Now:      time.Now(),
	}
	if prev, ok := a.statuses.Get(pod.UID); ok {
		in.Previous = &prev
	}
	if fails := a.runtime.StartErrors(pod.UID); len(fails) > 0 {
		in.StartErrors = make(map[string]podstatus.StartError, len(fails))
		for name, f := range fails {
			in.StartErrors[name] = podstatus.StartError{Reason: f.Reason, Message: f.Message}
		}
	}
	a.applyProbes(pod.UID, &in)
	in.NeedsSandbox = podruntime.NeedsSandbox(pod, obs)
	in.RestartAll = podruntime.RestartsAll(pod, obs)
	in.Resize = a.grants.conditions(pod.UID)
	return a.withClaimHealth(pod, a.withDevices(pod, podstatus.Of(in)))
}

// input gathers all that the compiler needs to know for this pod.
func (a *Agent) input(ctx context.Context, pod *v1.Pod, obs *observed.Pod, mounts volumemgr.Mounts) (podspec.Input, error) {
	handler, features, err := a.handlers.forPod(ctx, pod)
	if err != nil {
		return podspec.Input{}, err
	}
	ids, err := a.ids.forPod(pod)
	if err != nil {
		return podspec.Input{}, err
	}
	attached, err := a.withClaims(pod, a.attached(pod))
	if err != nil {
		return podspec.Input{}, err
	}
	node := a.nodeFacts()
	if a.cfg.Cgroups != nil {
		node.CgroupParent = a.cfg.Cgroups.CgroupParent(pod)
	}
	return podspec.Input{
		Pod:        pod,
		Node:       node,
		ConfigMaps: a.pods.ConfigMaps(pod.Namespace),
		Secrets:    a.pods.Secrets(pod.Namespace),
		PodIPs:     obs.IPs(),
		Volumes:    mounts.Paths(),
		PodDir:     a.podDir(pod.UID),
		Pinned:     a.placement.pins(pod),
		Attached:   attached,
		Services:   a.services(pod.Namespace),

		RuntimeHandler: handler, Handler: features, UserNamespace: ids, VolumeGroups: mounts.Groups(pod),
	}, nil
}

// networkNotReady asks the runtime why a sandbox could not be made, and turns
// err into ErrNetworkNotReady if the node's network is what is missing. The
// question is asked only then; a network that works is never polled.
func (a *Agent) networkNotReady(ctx context.Context, pod *v1.Pod, err error) error {
	if pod.Spec.HostNetwork || !errors.Is(err, podruntime.ErrCreateSandbox) {
		return err
	}
	st, serr := a.cfg.Runtime.Status(ctx, false)
	if serr != nil {
		return err
	}
	for _, c := range st.GetStatus().GetConditions() {
		if c.GetType() == "NetworkReady" && !c.GetStatus() {
			msg := fmt.Sprintf("network is not ready: %s: %s", c.GetReason(), c.GetMessage())
			a.events.Event(pod, v1.EventTypeWarning, "NetworkNotReady", msg)
			return fmt.Errorf("%w: %s", podworker.ErrNetworkNotReady, msg)
		}
	}
	return err
}

// pastDeadline tells whether spec.activeDeadlineSeconds is over, and sets the
// pod's timer if it is still to come.
func (a *Agent) pastDeadline(pod *v1.Pod, status *v1.PodStatus) bool {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return false
	}
	start := time.Now()
	if prev, ok := a.statuses.Get(pod.UID); ok && prev.StartTime != nil {
		start = prev.StartTime.Time
	} else if status.StartTime != nil {
		start = status.StartTime.Time
	}
	left := time.Duration(*limit)*time.Second - time.Since(start)
	if left <= 0 {
		a.forgetDeadline(pod.UID)
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.deadlines[pod.UID]; t != nil {
		t.Reset(left)
		return false
	}
	uid := pod.UID
	a.deadlines[uid] = time.AfterFunc(left, func() { a.workers.Resync(uid) })
	return false
}

func (a *Agent) forgetDeadline(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.deadlines[uid]; t != nil {
		t.Stop()
		delete(a.deadlines, uid)
	}
}

// reasonError gives an error the name under which people meet it.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string  { return e.err.Error() }
func (e *reasonError) Unwrap() error  { return e.err }
func (e *reasonError) Reason() string { return e.reason }

// logged reports an error that nobody else would hear of.
func (a *Agent) logged(what string, err error, fields ...zap.Field) {
	if err != nil && !errors.Is(err, context.Canceled) {
		a.log.Warn(what, append(fields, zap.Error(err))...)
	}
}
