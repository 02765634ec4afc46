package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/probing"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// The functions that a pod's worker calls. Each is idempotent, and is called again with back-off
// after a failure. After a crash at any point, the next process calls the same function again, with
// the state that the runtime then has.

// syncer has the functions that pod workers call. Calls for one pod do not overlap; calls for
// different pods are concurrent. During a call, nothing of the pod is garbage-collected (see
// [part.Holder]).
type syncer struct{ *Agent }

// SyncPod creates, starts and ends containers as the pod's spec and its present state
// require. The result says when it has to be called again.
func (a syncer) SyncPod(ctx context.Context, w podworker.Work) (podworker.Outcome, error) {
	newerThan, release, err := a.hooks.Hold(ctx, a.guard, w.Pod.UID, w.NewerThan)
	if err != nil {
		return podworker.Outcome{}, err
	}
	defer release()
	obs, err := a.observe(ctx, w.Pod, newerThan)
	if err != nil {
		return podworker.Outcome{}, fmt.Errorf("read the pod's status from the runtime: %w", err)
	}
	// Called before the allocation is read: a container may run with resources that no checkpoint
	// has.
	a.hooks.Learn(a.guard, w.Pod.UID, obs)
	pod := a.hooks.Allocated(a.guard, w.Pod)
	status := a.status(ctx, w.Life, pod, obs, false)
	var why podlife.Cause
	if a.pastDeadline(pod, &status) {
		why.Kind = podlife.DeadlineExceeded
		a.event(pod, why)
		why.Apply(&status)
	}
	// Before any other step, so that the observed state is published even if the next call hangs.
	a.setStatus(pod, statusmgr.Report{Life: w.Life.N, Status: status, Why: why})
	// If the pod has ended, its worker terminates the remaining containers, such as sidecars, and
	// cleans up. The accepted phase counts as well: if the runtime has nothing of the pod any
	// more, the published status may be the only sign that the pod has ended.
	accepted, _ := a.statuses.Phase(pod.UID)
	if podmeta.IsTerminal(status.Phase) || podmeta.IsTerminal(accepted) {
		return podworker.Outcome{Terminal: true}, nil
	}
	hooks.Each(a.guard, a.hooks.Starters, func(s part.Starter) { s.Syncing(pod) })

	in, err := a.prepare(ctx, w.Life, pod, obs)
	if err != nil {
		return podworker.Outcome{}, err
	}
	// Events caused by this sync are handled once, at its end, and not after each container.
	seen := a.pleg.Hold(pod.UID)
	req := podruntime.Request{
		Spec: in, Observed: obs, Startup: probing.Results(a.probes, probe.Startup), Liveness: probing.Results(a.probes, probe.Liveness),
		Unsure: a.certainty(w.Pod) < podlife.Confirmed,
	}
	res := a.runtime.Sync(ctx, req)
	news := a.hooks.Synced(a.guard, pod, &res, func() bool { return a.runtime.NeedsResize(req) })
	if err = res.Err(); err != nil {
		err = a.networkNotReady(ctx, pod, err)
	}
	if news || err != nil {
		// The status shows at once why a container did not start.
		a.setStatus(pod, statusmgr.Report{Life: w.Life.N, Status: a.status(ctx, w.Life, pod, obs, false)})
	}
	// Called after the worker has recorded the outcome: the inspection may wake it at once.
	after := func() {
		if res.Changed() {
			a.pleg.Refresh(pod.UID)
		}
		seen()
		if res.Resizes && res.Changed() && err == nil {
			a.workers.Resync(pod.UID) // the runtime sends no event for it; a failure has its back-off
		}
	}
	return podworker.Outcome{Acted: res.Changed(), After: after}, err
}

// prepare prepares everything that the pod's containers need, and returns the input of their
// compilation: directories, volumes, the cgroup, then the parts in turn. From the second sync on,
// everything usually exists already, and each step is cheap.
func (a *Agent) prepare(ctx context.Context, life podlife.Life, pod *v1.Pod, obs *observed.Pod) (in podspec.Input, err error) {
	if err := os.MkdirAll(a.podDir(pod.UID), 0o750); err != nil {
		a.events.Event(pod, v1.EventTypeWarning, "Failed", "error making pod data directories: "+err.Error())
		return in, fmt.Errorf("create pod directory: %w", err)
	}
	// Volumes come before the cgroup, since they may take long or fail.
	mounts, err := a.volumes.Mount(ctx, pod)
	if err != nil {
		return in, podlife.WithReason("FailedMount", fmt.Errorf("mount volumes: %w", err))
	}
	if err := a.ensureCgroup(ctx, pod); err != nil {
		return in, podlife.WithReason(reasonPodCgroup, fmt.Errorf("set up pod cgroup: %w", err))
	}
	if err := a.prepareParts(ctx, pod, obs); err != nil {
		return in, err
	}
	if in, err = a.input(ctx, life, pod, obs, mounts); err != nil {
		if ctx.Err() == nil {
			a.event(pod, podlife.Cause{Kind: podlife.SandboxFailed, Message: err.Error()})
		}
		return in, podlife.WithReason(podlife.SandboxFailed.Reason(), err)
	}
	return in, nil
}

// prepareParts calls the Preparers in turn.
func (a *Agent) prepareParts(ctx context.Context, pod *v1.Pod, obs *observed.Pod) error {
	// Without the device, the container would start and fail; this error names the cause.
	if hasClaims(pod) && len(a.hooks.Claimers) == 0 {
		a.events.Event(pod, v1.EventTypeWarning, reasonClaims, "Failed to prepare dynamic resources: "+errNoClaims.Error())
		return podlife.WithReason(reasonClaims, fmt.Errorf("prepare dynamic resources: %w", errNoClaims))
	}
	return hooks.InTurn(a.guard, a.hooks.Preparers, func(p part.Preparer) error { return p.Prepare(ctx, pod, obs) })
}

// reasonClaims is the kubelet's reason for claims that cannot be prepared.
const reasonClaims = "FailedPrepareDynamicResources"

var errNoClaims = errors.New("this node does no dynamic resource allocation")

// hasClaims reports whether the pod needs dynamic resources (KEP-4381), including claims that a
// scheduler created for extended resources.
func hasClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// SyncTerminatingPod terminates the pod's containers and verifies that they have ended. It blocks
// for the grace period, and returns nil only when the runtime shows that nothing runs: afterwards,
// resources are given to others.
func (a syncer) SyncTerminatingPod(ctx context.Context, w podworker.Work) error {
	pod := w.Pod
	newerThan, release, err := a.hooks.Hold(ctx, a.guard, pod.UID, w.NewerThan)
	if err != nil {
		return err
	}
	defer release()
	obs, err := a.observe(ctx, pod, newerThan)
	if err != nil {
		return fmt.Errorf("read the pod's status from the runtime: %w", err)
	}
	// A liveness probe must not restart a terminating container. Readiness probes continue, since
	// clients may still send traffic.
	a.probes.EndLivenessAndStartup(w.Life)
	a.publish(ctx, w, obs, observed.Maybe, false)
	defer a.pleg.Hold(pod.UID)()
	if err := a.runtime.Kill(ctx, pod, obs, w.GracePeriodSeconds); err != nil {
		if ctx.Err() == nil {
			a.events.Event(pod, v1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
		}
		return podlife.WithReason("FailedKillPod", fmt.Errorf("kill pod: %w", err))
	}
	// Observed after the kill: an earlier observation proves nothing.
	obs, err = a.observe(ctx, pod, time.Now())
	if err != nil {
		return fmt.Errorf("runtime status after the kill: %w", err)
	}
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.State.Runs() != observed.No {
			return fmt.Errorf("container %s (%s) is %s after a successful stop", c.Name, c.ID, c.State)
		}
	}
	if err := a.stopped(ctx, part.RefOf(pod)); err != nil {
		return err
	}
	a.publish(ctx, w, obs, observed.Maybe, true)
	return nil
}

// publish publishes the status of a terminating pod. The cause changes the status; for example,
// an eviction sets phase and reason. A terminal phase is published only when no container runs.
func (a *Agent) publish(ctx context.Context, w podworker.Work, obs *observed.Pod, runs observed.Answer, final bool) {
	r := statusmgr.Report{Life: w.Life.N, Status: a.status(ctx, w.Life, w.Pod, obs, final), Runs: runs}
	for _, why := range w.Causes {
		if why.Apply(&r.Status); why.Shows() {
			r.Why = why
		}
	}
	a.setStatus(w.Pod, r)
}

// stopped calls every Stopper for a pod whose containers have stopped.
func (a *Agent) stopped(ctx context.Context, ref part.Ref) error {
	if a.book.Get(ref.UID).Grants == book.TakenBack {
		return nil
	}
	err := hooks.InTurn(a.guard, a.hooks.Stoppers, func(s part.Stopper) error { return s.Stopped(ctx, ref) })
	if err == nil {
		a.book.Update(ref, func(e *book.Entry) { e.Grants = book.TakenBack })
	}
	return err
}

// SyncTerminatingRuntimePod terminates and removes a pod that only the runtime knows.
func (a syncer) SyncTerminatingRuntimePod(ctx context.Context, w podworker.Work) error {
	uid := w.RuntimePod.UID
	newerThan, release, err := a.hooks.Hold(ctx, a.guard, uid, w.NewerThan)
	if err != nil {
		return err
	}
	defer release()
	obs, err := a.pleg.GetNewerThan(ctx, uid, newerThan)
	if err != nil {
		return fmt.Errorf("read the pod's status from the runtime: %w", err)
	}
	// There is no spec. The containers' annotations have their grace period and hooks (see
	// podruntime).
	if err := a.runtime.Kill(ctx, nil, obs, nil); err != nil {
		return podlife.WithReason("FailedKillPod", fmt.Errorf("kill orphaned pod: %w", err))
	}
	if err := a.removeFromRuntime(ctx, obs); err != nil {
		return err
	}
	if err := a.stopped(ctx, part.Ref{UID: uid, Namespace: w.RuntimePod.Namespace, Name: w.RuntimePod.Name}); err != nil {
		return err
	}
	if err := a.destroyCgroup(ctx, uid); err != nil {
		return podlife.WithReason("FailedKillPod", fmt.Errorf("cgroup of an orphaned pod: %w", err))
	}
	a.requestCleanup() // its directories are orphaned now
	return nil
}

// SyncTerminatedPod cleans up a pod whose containers have ended. If the pod is still wanted, its
// containers are kept until the pod is removed, so that their logs can be read. The order matters:
// parts release resources of containers before volumes are unmounted, and the status counts as
// final only after the cgroup is removed.
func (a syncer) SyncTerminatedPod(ctx context.Context, w podworker.Work) error {
	pod := w.Pod
	_, release, err := a.hooks.Hold(ctx, a.guard, pod.UID, time.Time{})
	if err != nil {
		return err
	}
	defer release()
	// The existing observation has proven that everything has stopped.
	obs, err := a.observe(ctx, pod, time.Time{})
	if err != nil {
		return fmt.Errorf("read the pod's status from the runtime: %w", err)
	}
	defer a.pleg.Hold(pod.UID)()
	a.publish(ctx, w, obs, observed.No, true)
	a.probes.Remove(w.Life)
	a.book.ClearDeadline(pod.UID)
	if err := a.stopped(ctx, part.RefOf(pod)); err != nil {
		return err
	}
	gone := pod.DeletionTimestamp != nil || w.Evicted || !a.wanted(pod.UID)
	if gone {
		// Containers that the runtime cannot remove are handled as orphans from now on.
		if err := a.removeFromRuntime(ctx, obs); err != nil && !errors.Is(err, podruntime.ErrLeftBehind) {
			return err
		}
	}
	// The directory of a wanted pod stays until the pod is removed.
	takeDown := a.volumes.Unmount
	if gone {
		takeDown = a.volumes.Remove
	}
	if err := takeDown(ctx, pod.UID); err != nil {
		return podlife.WithReason("FailedUnmount", fmt.Errorf("unmount volumes: %w", err))
	}
	if err := a.destroyCgroup(ctx, pod.UID); err != nil {
		return podlife.WithReason("FailedKillPod", fmt.Errorf("remove pod cgroup: %w", err))
	}
	// From here on the sink may delete the pod's object.
	a.statuses.Terminate(pod)
	a.requestCleanup() // the worker's record can be removed
	return nil
}

// removeFromRuntime removes all containers, sandboxes and logs of a pod whose containers have
// stopped.
func (a *Agent) removeFromRuntime(ctx context.Context, obs *observed.Pod) error {
	if err := a.runtime.Remove(ctx, obs); err != nil {
		return podlife.WithReason("FailedRemovePod", fmt.Errorf("remove pod: %w", err))
	}
	a.runtime.Forget(obs.UID)
	if len(obs.Containers)+len(obs.Sandboxes) > 0 { // otherwise the event would only repeat this at once
		a.pleg.Refresh(obs.UID)
	}
	return nil
}

// wanted reports whether any source still wants the pod.
func (a *Agent) wanted(uid types.UID) bool {
	_, ok := a.pods.Pod(uid)
	return ok
}

// networkNotReady calls the runtime to find out why a sandbox could not be created. If the node's
// network is not ready, it returns ErrNetworkNotReady. It is called only after a failure; a working
// network is never polled.
func (a *Agent) networkNotReady(ctx context.Context, pod *v1.Pod, err error) error {
	if pod.Spec.HostNetwork || !errors.Is(err, podruntime.ErrCreateSandbox) {
		return err
	}
	// If the runtime does not answer, the first error is returned, which says more.
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
