package statusmgr

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// One pass of calls of the sink for one pod, without any lock. What it writes was
// fixed when it began: changes meanwhile are the next pass.

// slowWrite is how long a write may last before its status is stored.
const slowWrite = time.Second

// write has the input of the calls of the sink for a pod: the status to publish, and the status
// that the sink was given before. It does not change while the calls are made.
type write struct {
	e        *entry
	class    class // the queue that the pod came from
	before   state // state of the publication before the write began
	pod      *v1.Pod
	status   *v1.PodStatus
	shown    Shown
	runs     observed.Answer
	finished bool
	sent     *v1.PodStatus
	sentTo   types.UID
}

// result is the result of a call of the sink, as an event of the state machine.
type result struct {
	input
	err    error         // error of a failed call
	sent   *v1.PodStatus // the status that the sink has if the event is onWrote or onGone
	sentTo types.UID
}

// calls makes the calls of a write: an update if there is something to publish, and the deletion if
// it is due.
func (m *Manager) calls(w *write) {
	ctx, cancel := context.WithTimeout(m.ctx, writeTimeout)
	defer cancel()
	as := m.target(w)
	if as == nil {
		m.handle(w, result{input: input{event: onNoTarget}})
		return
	}
	if m.handle(w, m.update(ctx, w, as)) {
		m.handle(w, m.remove(ctx, as))
	}
}

// update publishes the status of w under the given object, unless the sink has it already.
func (m *Manager) update(ctx context.Context, w *write, object *v1.Pod) result {
	st, withheld := publishable(w, object)
	same := object.UID == w.sentTo
	// Only the deletion is left to do, or something else that the pass was begun
	// for has gone away.
	if same && !w.before.news() {
		return result{input: input{event: onUpToDate}}
	}
	r := result{input: input{event: onWrote, withheld: withheld, mirrored: podmeta.IsMirror(object)}, sent: &st, sentTo: object.UID}
	// Changes that took each other back count as written without a call.
	if same && w.before.sink == known && sameStatus(w.sent, &st) {
		return r
	}
	switch err := m.cfg.Sink.Update(ctx, object, st); {
	case errors.Is(err, ErrGone):
		r.event = onGone
	case err != nil:
		return result{input: input{event: onUpdateFailed}, err: err}
	}
	return r
}

// remove makes the sink delete an object. It is called when nothing of the pod is left on the
// node.
func (m *Manager) remove(ctx context.Context, object *v1.Pod) result {
	if err := m.cfg.Sink.Delete(ctx, object); err != nil && !errors.Is(err, ErrGone) {
		return result{input: input{event: onDeleteFailed}, err: err}
	}
	return result{input: input{event: onDeleted}}
}

// publishable returns the status for the sink. withheld reports that a terminal phase is left out
// because containers may still run.
func publishable(w *write, object *v1.Pod) (st v1.PodStatus, withheld bool) {
	api := object.Status
	// The object has no status of its own, as in a sink without an API.
	if api.Phase == "" {
		api = soleWriter(w)
	}
	st = merge(api, *w.status, !w.finished && w.runs != observed.No)
	return st, podmeta.IsTerminal(w.status.Phase) && !podmeta.IsTerminal(st.Phase)
}

// target returns the object under which to publish now, or nil if nothing is to be published. The
// write may have waited for the disk. If the pod was dropped meanwhile and began anew, its earlier
// final status must not be published.
func (m *Manager) target(w *write) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[w.pod.UID] != w.e || w.shown.target() == nil {
		return nil
	}
	return w.e.shown.target()
}

// soleWriter returns the status to merge into if the sink's object has no status of its own: the
// status that was published last, with the fields of other writers from the new status.
func soleWriter(w *write) v1.PodStatus {
	var api v1.PodStatus
	if w.sent != nil {
		api = *w.sent
	}
	if api.Phase == "" {
		api.Phase = v1.PodRunning
	}
	api.Conditions = nil
	for _, c := range w.status.Conditions {
		if !isOurs(c.Type) {
			api.Conditions = append(api.Conditions, c)
		}
	}
	if w.sent != nil {
		if c := find(w.sent.Conditions, v1.DisruptionTarget); c != nil {
			api.Conditions = append(api.Conditions, *c)
		}
	}
	api.ResourceClaimStatuses = w.status.ResourceClaimStatuses
	api.ExtendedResourceClaimStatus = w.status.ExtendedResourceClaimStatus
	api.NodeAllocatableResourceClaimStatuses = w.status.NodeAllocatableResourceClaimStatuses
	return api
}
