package agent

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/record"
	"github.com/nodewright/nodewright/volumemgr"
)

// The agent's interface for parts. Every method may be called from any goroutine and any hook,
// including those on the loop, so none may wait for the loop. Only methods with a ctx block.

// host implements part.Host.
type host struct{ a *Agent }

var (
	_ part.Host    = host{}
	_ part.Resizes = host{}
	_ part.Mirrors = host{}
	_ part.Claims  = host{}
	_ part.Garbage = host{}

	_ part.VolumeMeter = host{}
	_ part.Storage     = host{}
	_ part.Records     = host{}
)

func (h host) Pods() []*v1.Pod                               { return h.a.pods.Pods() }
func (h host) Pod(uid types.UID) (*v1.Pod, bool)             { return h.a.pods.Pod(uid) }
func (h host) ActivePods() []*v1.Pod                         { return h.a.admission.Active("") }
func (h host) Status(uid types.UID) (v1.PodStatus, bool)     { return h.a.statuses.Get(uid) }
func (h host) Phase(uid types.UID) (v1.PodPhase, bool)       { return h.a.statuses.Phase(uid) }
func (h host) Worker(uid types.UID) (podworker.Status, bool) { return h.a.workers.State(uid) }
func (h host) AllReady() bool                                { return h.a.pods.AllReady() }
func (h host) Settled() <-chan struct{}                      { return h.a.run.settled }
func (h host) Dir(uid types.UID) string                      { return h.a.podDir(uid) }
func (h host) Listed() <-chan struct{}                       { return h.a.pleg.Listed() }
func (h host) RuntimePods() []observed.Listed                { return h.a.pleg.Pods() }
func (h host) Observed(uid types.UID) observed.View          { return h.a.pleg.View(uid) }
func (h host) Resync(uid types.UID) bool                     { return h.a.workers.Resync(uid) }
func (h host) Housekeep()                                    { h.a.requestCleanup() }
func (h host) NodeEvent(eventType, reason, message string) {
	h.a.events.Node(eventType, reason, message)
}
func (h host) PodByName(namespace, name string) (*v1.Pod, bool) {
	return h.a.pods.PodByName(namespace, name)
}
func (h host) Mirror(namespace, name string) (*v1.Pod, bool) { return h.a.pods.Mirror(namespace, name) }
func (h host) Mirrors() []*v1.Pod                            { return h.a.pods.Mirrors() }
func (h host) Terminating(fullName string) bool              { return h.a.workers.TerminatingByFullName(fullName) }
func (h host) Republish(uid types.UID)                       { h.a.republish(uid) }
func (h host) Reconcile(pod *v1.Pod)                         { h.a.reconcile(pod) }
func (h host) Life(pod *v1.Pod) podlife.Life                 { return h.a.life(pod) }
func (h host) KnownTerminated(uid types.UID) bool            { return h.a.workers.KnownTerminated(uid) }
func (h host) Want(uid types.UID) podmgr.Want                { return h.a.pods.Want(uid) }
func (h host) ContentRemovable(uid types.UID) bool           { return h.a.workers.ShouldContentBeRemoved(uid) }
func (h host) CheckResize(has, asks *v1.Pod) (reason, msg, detail string) {
	return h.a.admission.CheckResize(has, asks)
}

func (h host) Observe(ctx context.Context, uid types.UID) (*observed.Pod, error) {
	return h.a.pleg.GetNewerThan(ctx, uid, time.Now())
}

// Readmit sets the flag running.changed before it wakes the loop, and the loop clears the
// flag before it decides. So no request is lost.
func (h host) Readmit() {
	h.a.run.changed.Store(true)
	h.a.run.readmit.Set()
}

// Retry ends the back-off before it requests the sync; otherwise the sync would still
// wait.
func (h host) Retry(uid types.UID) {
	h.a.runtime.Retry(uid)
	h.a.workers.Resync(uid)
}

func (h host) Event(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	h.a.events.Annotated(pod, annotations, eventType, reason, message)
}

// Update passes a pod to its worker, with its allocated resources instead of the requested
// ones, which may not be granted yet.
func (h host) Update(pod *v1.Pod) {
	h.a.update(podworker.ConfigUpdate, h.a.hooks.Allocated(h.a.guard, pod), nil)
}

func (h host) ResourceClaims(namespace string) map[string]*resourceapi.ResourceClaim {
	return h.a.pods.ResourceClaims(namespace)
}

// VolumeStats returns nothing if Config.Volumes.Manager is not a [VolumeMeasurer].
func (h host) VolumeStats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error) {
	if m, ok := h.a.volumes.(VolumeMeasurer); ok {
		return m.Stats(ctx, uid)
	}
	return nil, nil
}

func (h host) Secrets(namespace string) map[string]*v1.Secret { return h.a.pods.Secrets(namespace) }

func (h host) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	return h.a.pods.Claim(namespace, name)
}

func (h host) Volume(name string) (*v1.PersistentVolume, bool) { return h.a.pods.Volume(name) }

func (h host) Record(e record.Entry) { h.a.record(e) }

func (h host) VolumesChanged(r volumemgr.Ref) {
	if v, ok := h.a.volumes.(VolumeWatcher); ok {
		v.Changed(r)
	}
}

func (h host) PruneImages(ctx context.Context, present []string, since time.Time) error {
	return h.a.images.Prune(ctx, present, since)
}

// ErrNotEnded means that the agent ends before a pod that End terminates.
var ErrNotEnded = errors.New("the agent is ending and no longer waits for the pod")

// End may be called for a pod that is terminating already; then the shorter of the two
// grace periods counts.
func (h host) End(ctx context.Context, pod *v1.Pod, why podlife.Cause) error {
	done := make(chan struct{})
	h.a.update(podworker.KillUpdate, pod, &podworker.KillOptions{Done: done, Why: why})
	return h.a.awaitEnd(ctx, pod, done)
}
