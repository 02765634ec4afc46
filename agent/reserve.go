package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/part"
)

// Reservations of exclusive resources. A reservation that has to wait for a plugin, a disk or a
// server is made in a goroutine of its own. Meanwhile the pod counts as admitted, and the book has
// its stage. When the reservation has ended, the loop applies the result.

// reservePause is the minimum time between a failed reservation and the next one for the same pod.
const reservePause = time.Second

// reserve calls the Reservers of all parts for a pod: at once if no part has to wait, and otherwise
// in a goroutine. In the second case decided is false.
func (a *Agent) reserve(ctx context.Context, pod *v1.Pod) (r *part.Rejection, decided bool) {
	if len(a.hooks.Reservers) == 0 {
		return nil, true
	}
	// After a failure there is a pause: a plugin that refuses is not called again for each change
	// on the node.
	if e := a.book.Get(pod.UID); e.Stage == book.Waiting && time.Now().Before(e.Quiet) {
		a.book.Update(part.RefOf(pod), func(e *book.Entry) { e.Asked = true })
		return e.Why, true
	}
	if !a.waits(pod) {
		if _, r := a.hooks.Reserve(ctx, a.guard, pod); r != nil {
			return a.makeRoom(ctx, pod, r), true
		}
		return nil, true
	}
	ctx, cancel := context.WithTimeout(ctx, admit.ReserveTimeout)
	a.book.Update(part.RefOf(pod), func(e *book.Entry) {
		e.Stage, e.Verdict, e.Since, e.Cancel, e.Asked = book.Reserving, nil, time.Now(), cancel, false
	})
	a.admission.Counts(pod)
	a.background(ctx, func(ctx context.Context) {
		defer cancel()
		held, r := a.hooks.Reserve(ctx, a.guard, pod)
		gone := false
		a.book.Update(part.RefOf(pod), func(e *book.Entry) {
			// Done under the book's lock, so that abandon either cancels this reservation or sees
			// its result.
			if gone = e.Stage == book.Undoing; !gone {
				e.Stage, e.Verdict, e.Held = book.Reserved, r, held
			}
		})
		if gone {
			a.undo(pod.UID, held)
		}
		a.run.readmit.Set()
	})
	return nil, false
}

// makeRoom decides on a pod whose reservation was rejected. It may terminate pods for it.
func (a *Agent) makeRoom(ctx context.Context, pod *v1.Pod, r *part.Rejection) *part.Rejection {
	v := a.admission.Refused(pod, r)
	a.preempt(ctx, pod, v.Victims)
	return v.Why
}

// waits reports whether a part would have to wait during the pod's reservation. It calls Waits of
// every part, so that each part knows about the pod.
func (a *Agent) waits(pod *v1.Pod) bool {
	slow := false
	for _, h := range a.hooks.Reservers {
		slow = hooks.Ask(a.guard, h, func(r part.Reserver) bool { return r.Waits(pod) }) || slow
	}
	return slow
}

// abandon handles a pod that is removed before it was admitted. Its reservations are released in a
// goroutine, since plugins and disks may be slow. Until then, its stage prevents its admission.
func (a *Agent) abandon(ctx context.Context, uid types.UID) {
	var held []part.Reservation
	done := false
	switch a.book.Get(uid).Stage {
	case book.Waiting, book.Reserving, book.Reserved:
	default:
		return
	}
	a.book.Update(part.Ref{UID: uid}, func(e *book.Entry) {
		switch e.Stage {
		case book.Waiting:
			e.Stage = book.Unknown
		case book.Reserving:
			e.Stage = book.Undoing
			e.Cancel()
		case book.Reserved:
			e.Stage, held, e.Held, done = book.Undoing, e.Held, nil, true
		}
	})
	if done {
		a.background(ctx, func(context.Context) {
			a.undo(uid, held)
			a.run.readmit.Set()
		})
	}
}

// undo releases reservations, the last one first.
func (a *Agent) undo(uid types.UID, held []part.Reservation) {
	hooks.Release(a.guard, held)
	a.book.Update(part.Ref{UID: uid}, func(e *book.Entry) { e.Stage = book.Undone })
}

// conclude applies the results of reservations that have ended, and decides again on waiting pods:
// resources may have become available.
func (a *Agent) conclude(ctx context.Context) {
	over := a.book.At(book.Reserved, book.Undone)
	// Sorted for a deterministic order.
	for _, uid := range slices.Sorted(maps.Keys(over)) {
		e := over[uid]
		pod, ok := a.pods.Pod(uid)
		ok = ok && pod.DeletionTimestamp == nil
		switch {
		case e.Stage == book.Undone:
			a.book.Forget(uid)
			if ok {
				a.add(ctx, pod)
			}
		case !ok:
			a.abandon(ctx, uid)
		default:
			a.book.Update(part.RefOf(pod), func(e *book.Entry) {
				e.Stage, e.Held = book.Unknown, nil
				if e.Verdict != nil {
					e.Quiet = time.Now().Add(reservePause)
				}
			})
			r := e.Verdict
			if r != nil {
				r = a.makeRoom(ctx, a.hooks.Allocated(a.guard, pod), r)
			}
			a.settle(pod, r)
		}
	}
	// Cleared before the decisions: a change that comes meanwhile causes another round.
	switch changed := a.run.changed.Swap(false); {
	case changed:
		a.retryWaiting(ctx, every)
	case len(over) > 0:
		now := time.Now()
		a.retryWaiting(ctx, func(e book.Entry) bool { return !now.Before(e.Quiet) })
	}
}

// every returns true: it selects all waiting pods.
func every(book.Entry) bool { return true }

// retryWaiting decides again on the selected waiting pods.
func (a *Agent) retryWaiting(ctx context.Context, which func(book.Entry) bool) {
	waits := a.book.At(book.Waiting)
	if len(waits) == 0 {
		return
	}
	for _, p := range a.pods.Pods() {
		if e, ok := waits[p.UID]; ok && which(e) && p.DeletionTimestamp == nil {
			a.add(ctx, p)
		}
	}
}
