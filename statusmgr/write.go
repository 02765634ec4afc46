package statusmgr

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// One pass of calls of the sink for one pod, without any lock. What it writes was
// fixed when it began: changes meanwhile are the next pass.

// slowWrite is how long a write may last before its status is stored.
const slowWrite = time.Second

// write is one pass of calls of the sink for a pod: the status to publish, and
// the one that the sink was given before. It is never changed.
type write struct {
	e        *entry
	class    class // of the queue that it came from
	before   state // when the pass began
	pod      *v1.Pod
	status   *v1.PodStatus
	finished bool
	held     bool // it is not to be published; looked at here, as the status of a pass is
	sent     *v1.PodStatus
	sentTo   types.UID
}

// result is the event that a call of the sink results in.
type result struct {
	input
	err    error         // of a call that failed
	sent   *v1.PodStatus // the status that the sink has if the event is onWrote or onGone
	sentTo types.UID
}

// calls makes the calls of a write: an update if there is news, and the
// deletion once it is due.
func (m *Manager) calls(w *write) {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Timeout)
	defer cancel()
	as, ok := m.cfg.PublishAs(w.pod)
	if !ok || w.held || !m.cfg.Known(w.pod) || m.dropped(w) {
		m.handle(w, result{input: input{event: onNoTarget}})
		return
	}
	if m.handle(w, m.update(ctx, w, as)) {
		m.handle(w, m.remove(ctx, w, as))
	}
}

// update publishes the status unless the sink has it.
func (m *Manager) update(ctx context.Context, w *write, as *v1.Pod) result {
	st, held := m.publishable(w, as)
	same := as.UID == w.sentTo
	// Only the deletion is left to do, or something else that the pass was begun
	// for has gone away.
	if same && !w.before.news() && held == w.before.held {
		return result{input: input{event: onUpToDate}}
	}
	r := result{input: input{event: onWrote, held: held, mirrored: podmeta.IsMirror(as)}, sent: &st, sentTo: as.UID}
	// Changes that took each other back count as written without a call.
	if same && w.before.sink == known && sameStatus(w.sent, &st) {
		return r
	}
	switch err := m.cfg.Sink.Update(ctx, as, st); {
	case errors.Is(err, ErrGone):
		r.event = onGone
	case err != nil:
		return result{input: input{event: onUpdateFailed}, err: err}
	}
	return r
}

// remove deletes the pod once nothing of it is left on the node. It returns
// onNotReclaimed while volumes, cgroups or devices of the pod are left: the API's
// object would be gone before them, and its name free for a new pod.
func (m *Manager) remove(ctx context.Context, w *write, as *v1.Pod) result {
	if !m.cfg.Reclaimed(w.pod.UID) {
		return result{input: input{event: onNotReclaimed}}
	}
	if err := m.cfg.Sink.Delete(ctx, as); err != nil && !errors.Is(err, ErrGone) {
		return result{input: input{event: onDeleteFailed}, err: err}
	}
	return result{input: input{event: onDeleted}}
}

// publishable returns the status that the sink gets, and whether its terminal
// phase is held back because containers may run.
func (m *Manager) publishable(w *write, as *v1.Pod) (st v1.PodStatus, held bool) {
	api := as.Status
	// The object has no status of its own, as in a sink without an API.
	if api.Phase == "" {
		api = soleWriter(w)
	}
	// CouldHaveRunning is asked last and only if the answer matters: it may have to
	// look at the runtime.
	// The answer is of now, and the status of when the pass began: if containers have stopped
	// since, it shows them as running still, and a newer one is there that does not.
	running := !w.finished && podmeta.IsTerminal(w.status.Phase) && (m.cfg.CouldHaveRunning(w.pod.UID) || m.outdated(w))
	st = merge(api, *w.status, running)
	return st, podmeta.IsTerminal(w.status.Phase) && !podmeta.IsTerminal(st.Phase)
}

// dropped reports whether the pod was forgotten after a pass began: the pass may have waited for the
// disk, and a pod that starts over must not be published with the end of its earlier run.
func (m *Manager) dropped(w *write) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[w.pod.UID] != w.e
}

// outdated reports whether there is a newer status than the one of a pass.
func (m *Manager) outdated(w *write) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return w.e.version != w.before.version
}

// soleWriter returns the status to merge into where nobody else writes to it:
// the published one, with the fields of other writers as the new status has
// them.
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
