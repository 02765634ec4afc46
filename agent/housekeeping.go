package agent

import (
	"context"
	"maps"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// housekeeping compares what is wanted with what the workers, the runtime and
// the disk have, and starts what is missing or ends what is left over. It
// does nothing before every source has spoken: until then a pod that no
// source named may still be wanted.
func (a *Agent) housekeeping(ctx context.Context) {
	a.retryWaiting(nil)
	if !a.pods.AllReady() {
		return
	}
	a.gc.allKnown()
	a.allSpoken.Do(func() { close(a.settled) })
	desired := a.pods.Pods()
	working := a.workers.SyncKnownPods(desired)
	a.forgetUnwanted(desired)
	a.retryResizes()
	a.removeOrphanedMirrors()
	a.beginAgain(desired)
	a.beginEvicted(desired)

	known := make(map[types.UID]bool, len(desired)+len(working))
	for uid := range working {
		known[uid] = true
	}
	for _, p := range desired {
		known[p.UID] = true
		if _, ok := working[p.UID]; ok || a.isRejected(p.UID) || podmeta.IsTerminal(p.Status.Phase) || !a.isAdmitted(p.UID) {
			continue
		}
		if ph, ok := a.statuses.Phase(p.UID); ok && podmeta.IsTerminal(ph) {
			continue
		}
		a.log.Info("pod restarted", zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", string(p.UID)))
		a.metrics.restarted.Inc()
		a.add(p)
	}
	for _, l := range a.pleg.Pods() {
		if known[l.UID] {
			continue
		}
		known[l.UID] = true // its directories go after it
		a.metrics.orphans.Inc()
		grace := int64(orphanGraceSeconds)
		a.workers.Update(podworker.Update{
			Type:       podworker.KillUpdate,
			RuntimePod: &podworker.RuntimePod{UID: l.UID, Name: l.Name, Namespace: l.Namespace},
			Kill:       &podworker.KillOptions{GracePeriodSeconds: &grace},
		})
	}
	a.statuses.Retain(known)
	a.probes.Retain(func(uid types.UID) bool { return known[uid] })
	a.events.forget(func(uid types.UID) bool { return known[uid] })
	if a.sweeping.CompareAndSwap(false, true) {
		a.sweeps.Go(func() {
			defer a.sweeping.Store(false)
			a.sweepCgroups(ctx, known) // it goes by the directories
			a.sweepPodDirs(ctx, known)
			a.gc.sweep(ctx)
			a.sweepIDs(known)
			a.sweepGrants(known)
			a.sweepPlacement(ctx, known)
			a.sweepDevices(known)
			a.sweepClaims(known)
			a.sweepTokens(known)
			a.pruneSink(known)
			a.runtime.Retain(func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
		})
	}
}

// forgetUnwanted drops what the agent itself remembers of pods that are gone.
func (a *Agent) forgetUnwanted(desired []*v1.Pod) {
	want := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		want[p.UID] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.rejected {
		if !want[uid] {
			delete(a.rejected, uid)
		}
	}
	for uid := range a.admitted {
		if !want[uid] {
			delete(a.admitted, uid)
		}
	}
}

// sweepPodDirs removes the directories of pods that nothing knows. Volumes
// are taken down first; one that will not go keeps its directory.
func (a *Agent) sweepPodDirs(ctx context.Context, known map[types.UID]bool) {
	err := a.volumes.Sweep(ctx, func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
	a.logged("directories of pods that are gone stay", err)
}

// pruneSink has the sink drop the statuses of pods that nothing knows.
func (a *Agent) pruneSink(known map[types.UID]bool) {
	p, ok := a.cfg.Sink.(interface {
		Prune(keep map[types.UID]bool) error
	})
	if !ok {
		return
	}
	keep := maps.Clone(known)
	for _, p := range a.pods.Pods() { // those that came since
		keep[p.UID] = true
	}
	a.logged("statuses of pods that are gone stay", p.Prune(keep))
}

// sweepIDs frees the user IDs of pods that nothing knows.
func (a *Agent) sweepIDs(known map[types.UID]bool) {
	for _, uid := range a.ids.held() {
		if !known[uid] && !a.wanted(uid) {
			a.logged("user IDs stay taken", a.ids.release(uid), zap.String("uid", string(uid)))
		}
	}
}

func (a *Agent) setAdmitted(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.admitted[uid] = true
	delete(a.rejected, uid)
}

func (a *Agent) isAdmitted(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admitted[uid]
}

func (a *Agent) isRejected(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.rejected[uid]
	return ok
}
