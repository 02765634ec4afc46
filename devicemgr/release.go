package devicemgr

import (
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Release frees all devices of a pod at once. The caller guarantees that no container of the pod
// is running or will run. The record is deleted in the background while [Manager.Run] runs, since
// a disk may hang. If a record was not deleted, Restore recognizes after a restart that nothing
// of the pod is running. Release may be called again, and for a pod without devices.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	had := m.pods[uid] != nil
	if a := m.pending[uid]; a != nil {
		a.released = true // Commit handles the rest
	}
	// First the memory, then the disk, so that the next pod does not wait for the disk.
	m.drop(uid)
	m.kubeletOutdated.Set()
	// wg.Add is called with the lock held and only before Run waits for the group.
	background := had && m.ctx != nil && m.ctx.Err() == nil
	if background {
		m.wg.Go(func() { m.correct(uid) })
	}
	m.mu.Unlock()
	if had && !background {
		// Without Run no one waits for a goroutine, so the caller waits for the disk.
		m.correct(uid)
	}
}

// correct writes or deletes the pod's stored record. It blocks on the store, and reports whether
// the record is correct now. Retain repeats failed corrections.
func (m *Manager) correct(uid types.UID) (ok bool) {
	defer m.enter(uid)()
	return m.amend(uid)
}

// amend does the work of correct. The caller holds the pod's turn. amend writes the current state
// of the pod, or deletes the record of a released pod. It reads that state itself: if several
// corrections wait, each writes the newest state.
func (m *Manager) amend(uid types.UID) (ok bool) {
	m.mu.Lock()
	r := m.pods[uid]
	wrong := m.inexact[uid]
	// Removed before the write, so that a failure during the write is recorded.
	delete(m.inexact, uid)
	m.mu.Unlock()
	var err error
	switch {
	// Even without a known failure, since Release calls amend for every record that it drops.
	case r == nil:
		err = m.cfg.Store.Delete(podPrefix + string(uid))
	case wrong:
		err = m.write(r)
	}
	if err != nil {
		m.cfg.Log.Warn("failed to correct the device record of a pod", zap.String("uid", string(uid)), zap.Error(err))
		// Retain will try again.
		m.mu.Lock()
		m.inexact[uid] = true
		m.mu.Unlock()
	}
	return err == nil
}

// turn is a lock on one pod's record in the store. It is held during calls to the store, so that
// only calls for the same pod wait. A pod may be released and admitted again at once: without the
// order, the old deletion could remove the new record.
type turn struct {
	held  chan struct{} // has a value while the lock is held
	users int           // guarded by Manager.mu
}

// enter waits for the turn of a pod's record, and returns a function that releases it. It must
// not be called with Manager.mu held, nor twice by one goroutine. It has no timeout of its own:
// the calls to the store end at the store's timeout.
func (m *Manager) enter(uid types.UID) (leave func()) {
	m.mu.Lock()
	t := m.turns[uid]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		m.turns[uid] = t
	}
	t.users++
	m.mu.Unlock()
	// users was increased under the lock, so the entry still exists when the turn is taken.
	t.held <- struct{}{}
	return func() {
		<-t.held
		m.mu.Lock()
		defer m.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(m.turns, uid)
		}
	}
}
