package podworker

import (
	"errors"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// errSuperseded is the cause with which a call in flight is cancelled to make
// way for a termination, or for one with less grace.
var errSuperseded = errors.New("superseded by a request to end the pod")

// Update tells the pod's worker of news. It returns at once; the pod's syncer
// runs later, with this update or a newer one.
func (m *Manager) Update(u Update) {
	uid, namespace, name, ok := identify(&u)
	if !ok {
		m.cfg.Log.Error("update dropped: it names no pod, or it is no kill of a pod that only the runtime knows",
			zap.Stringer("type", u.Type))
		closeDone(u.Kill)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		closeDone(u.Kill)
		return
	}
	m.accept(uid, namespace, name, u)
}

// identify checks that an update makes sense and whom it concerns.
func identify(u *Update) (uid types.UID, namespace, name string, ok bool) {
	if u.Pod != nil {
		u.RuntimePod = nil
		return u.Pod.UID, u.Pod.Namespace, u.Pod.Name, true
	}
	if u.RuntimePod == nil || u.Type != KillUpdate {
		return "", "", "", false
	}
	return u.RuntimePod.UID, u.RuntimePod.Namespace, u.RuntimePod.Name, true
}

func closeDone(k *KillOptions) {
	if k != nil && k.Done != nil {
		close(k.Done)
	}
}

func (m *Manager) accept(uid types.UID, namespace, name string, u Update) {
	now := time.Now()
	r, known := m.records[uid]
	if !known {
		r = m.newRecord(uid, namespace, name, &u, now)
	}
	fromRuntime := u.RuntimePod != nil
	if fromRuntime {
		r.observedRuntime = true
		if p := r.pod(); p != nil { // so the whole teardown is used
			u.Pod, u.RuntimePod = p, nil
		}
	}
	if known && u.Type == CreateUpdate && !r.terminatingAt.IsZero() && u.Pod.DeletionTimestamp == nil {
		// Kept for the pod's next life, which begins when this one is over.
		kept := u
		kept.Kill = nil
		r.restart = &kept
		closeDone(u.Kill)
		if r.finished {
			m.forget(r)
		}
		return
	}
	if r.finished {
		closeDone(u.Kill)
		return
	}
	if r.restart != nil && !fromRuntime {
		r.reviseRestart(&u)
	}
	becameTerminating := r.noteTermination(&u, fromRuntime, now)
	shortened := false
	switch {
	case !r.terminatedAt.IsZero():
		closeDone(u.Kill)
		if fromRuntime {
			return
		}
	case !r.terminatingAt.IsZero():
		shortened = r.collectKill(&u, becameTerminating)
	default:
		closeDone(u.Kill)
	}
	u.Kill = nil // all that counts of it is in the record
	if !r.pending.Start.IsZero() && (u.Start.IsZero() || r.pending.Start.Before(u.Start)) {
		u.Start = r.pending.Start
	}
	r.pending = news{u, true}
	if (becameTerminating || shortened) && r.cancel != nil {
		r.cancel(errSuperseded)
	}
	m.wake(r)
}

// newRecord begins a pod's life. A pod first seen in a terminal phase, with
// nothing of it running, begins at the end.
func (m *Manager) newRecord(uid types.UID, namespace, name string, u *Update, now time.Time) *record {
	r := &record{uid: uid, namespace: namespace, name: name, since: now}
	m.records[uid] = r
	if u.Pod == nil {
		return r
	}
	if podmeta.IsTerminal(u.Pod.Status.Phase) && m.cfg.Idle(uid) {
		r.terminatingAt, r.terminatedAt, r.startedTerminating = now, now, true
	}
	if r.static = podmeta.IsStatic(u.Pod); r.static {
		m.queueName(r)
	}
	return r
}

// reviseRestart lets an update that came after the create change the next
// life, too, or call it off.
func (r *record) reviseRestart(u *Update) {
	switch {
	case u.Type == KillUpdate || u.Pod.DeletionTimestamp != nil:
		r.restart = nil
	case u.Type == ConfigUpdate && !podmeta.IsTerminal(u.Pod.Status.Phase):
		r.restart.Pod = u.Pod
		if u.MirrorPod != nil {
			r.restart.MirrorPod = u.MirrorPod
		}
	}
}

// noteTermination records that the pod is to end, and why. Reasons that come
// later are added: what was killed first can still be evicted or deleted.
func (r *record) noteTermination(u *Update, fromRuntime bool, now time.Time) (became bool) {
	end := false
	switch {
	case fromRuntime:
		r.deleted, end = true, true
	case u.Pod != nil && u.Pod.DeletionTimestamp != nil:
		r.deleted, end = true, true
	case u.Pod != nil && podmeta.IsTerminal(u.Pod.Status.Phase):
		end = true
	}
	if u.Type == KillUpdate {
		end = true
		if u.Kill != nil && u.Kill.Evict {
			r.evicted = true
		}
	}
	if !end || !r.terminatingAt.IsZero() {
		return false
	}
	r.terminatingAt = now
	return true
}

// collectKill adds an update's options to those of a pod that terminates and
// tells whether it has less time now.
func (r *record) collectKill(u *Update, became bool) (shortened bool) {
	var override *int64
	if k := u.Kill; k != nil {
		if k.Done != nil {
			r.done = append(r.done, k.Done)
		}
		if k.Status != nil {
			r.statusFuncs = append(r.statusFuncs, k.Status)
		}
		override = k.GracePeriodSeconds
	}
	pod := u.Pod
	if pod == nil {
		pod = r.pod()
	}
	if !became && r.grace == 0 { // it ended by itself, with the time of its spec
		r.grace, _ = effectiveGrace(0, r.pod(), nil)
	}
	r.grace, shortened = effectiveGrace(r.grace, pod, override)
	return shortened
}

// Resync has the pod looked at again with what is known of it, and tells
// whether there is such a pod. A pod that waits after an error is tried
// again at once.
func (m *Manager) Resync(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[uid]
	if !ok {
		return false
	}
	if !r.finished {
		m.replay(r)
	}
	return true
}

// replay runs the last update again, unless a newer one waits already.
func (m *Manager) replay(r *record) {
	if !r.pending.ok {
		r.pending = r.active
	}
	m.wake(r)
}
