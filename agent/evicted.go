package agent

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// A pod that was evicted begins again after evictedBackoff at the earliest,
// doubled each time up to maxEvictedBackoff, and from the start when it has run
// for evictedRecovers: the kubelet's figures for containers that crash.
const (
	evictedBackoff    = 10 * time.Second
	maxEvictedBackoff = 5 * time.Minute
	evictedRecovers   = 2 * maxEvictedBackoff
)

// evictedPod is a pod that was evicted and that nobody makes another one of.
// Agent.mu guards it.
type evictedPod struct {
	delay time.Duration
	until time.Time // it does not begin before
	again time.Time // when it began again; zero while it is over
}

// comesBack tells of a pod that was evicted and is to begin again by itself:
// one from a manifest, where there are no others. A static pod never ends for
// good with the kubelet, which evicts none; and of another pod its controller
// would make a new one. One that is never to be restarted stays as it is.
func (a *Agent) comesBack(pod *v1.Pod, st *v1.PodStatus) bool {
	return a.eviction != nil && a.cfg.Eviction.Standalone && podmeta.IsStatic(pod) && pod.Spec.RestartPolicy != v1.RestartPolicyNever &&
		st.Phase == v1.PodFailed && st.Reason == "Evicted" && !wasRejected(st)
}

// underPressure tells whether the node is short of anything, or was not long
// ago.
func (a *Agent) underPressure() bool {
	for _, c := range a.Pressure() {
		if c.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// beginEvicted starts the pods again that were evicted, when the node is no
// longer short of anything. They are admitted as new ones are.
func (a *Agent) beginEvicted(desired []*v1.Pod) {
	want := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		want[p.UID] = true
		st, ok := a.statuses.Get(p.UID)
		if !ok || !a.comesBack(p, &st) || a.ShuttingDown() != nil {
			continue
		}
		if w, known := a.workers.State(p.UID); known && !w.Finished || !a.evictedFor(p.UID) || a.underPressure() {
			continue
		}
		a.log.Info("pod begins again after its eviction", zap.String("pod", p.Namespace+"/"+p.Name))
		a.mu.Lock()
		a.evicted[p.UID].again = time.Now()
		a.mu.Unlock()
		a.statuses.Forget(p.UID)
		a.setAdmitted(p.UID) // it is asked about when its worker is gone
		a.workers.Update(podworker.Update{Type: podworker.CreateUpdate, Pod: a.grants.of(p), Start: time.Now()})
		a.requestCleanup()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range a.evicted {
		if !want[uid] {
			delete(a.evicted, uid)
		}
	}
}

// evictedFor tells whether a pod that was evicted has been over for long
// enough.
func (a *Agent) evictedFor(uid types.UID) bool {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.evicted[uid]
	if e != nil && e.again.IsZero() {
		return !now.Before(e.until)
	}
	next := &evictedPod{delay: evictedBackoff}
	if e != nil && now.Sub(e.again) < evictedRecovers {
		next.delay = min(2*e.delay, maxEvictedBackoff)
	}
	next.until = now.Add(next.delay)
	if a.evicted == nil {
		a.evicted = map[types.UID]*evictedPod{}
	}
	a.evicted[uid] = next
	time.AfterFunc(next.delay, a.requestCleanup)
	return false
}

// evictedWhy says in one line what a pod waits for that was evicted, "" for
// others.
func (a *Agent) evictedWhy(pod *v1.Pod) string {
	if st, ok := a.statuses.Get(pod.UID); !ok || !a.comesBack(pod, &st) {
		return ""
	}
	a.mu.Lock()
	e := a.evicted[pod.UID]
	a.mu.Unlock()
	switch {
	case a.underPressure():
		return "the node to be no longer short of anything: it was evicted, and begins again then"
	case e != nil:
		return fmt.Sprintf("its time to begin again, %s: it was evicted", e.until.Format(time.TimeOnly))
	}
	return "its time to begin again: it was evicted"
}
