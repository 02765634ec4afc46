package devicemgr

import (
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Release gives back all that a pod has: none of its containers runs, and none
// will. Others can have it at once. The record is deleted in the background while
// [Manager.Run] runs, since a disk may hang. What cannot be deleted from the store
// is known to be over after a restart by nothing of the pod running. A pod that has
// nothing is no error; Release may be called again.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	had := m.pods[uid] != nil
	if a := m.pending[uid]; a != nil {
		a.released = true // Commit sees to the rest
	}
	// Memory first, disk afterwards: the next pod need not wait for a disk.
	m.drop(uid)
	m.tell()
	// The group is added to with the lock held and only while Run runs, so that its
	// Wait has not been passed.
	background := had && m.ctx != nil && m.ctx.Err() == nil
	if background {
		m.wg.Go(func() { m.correct(uid) })
	}
	m.mu.Unlock()
	if had && !background {
		// Without Run there is nobody to wait for a goroutine: the caller waits for
		// the disk.
		m.correct(uid)
	}
}

// correct has the store say what a pod has. Retain tries again what failed. It
// blocks for the store, and reports whether the record is now right.
func (m *Manager) correct(uid types.UID) (ok bool) {
	defer m.enter(uid)()
	return m.amend(uid)
}

// amend is correct in the pod's turn. A pod that was released has no record, unless
// it was admitted again since. The present state is read here and not when the
// correction was asked for: of several corrections the last one wins whatever their
// order.
func (m *Manager) amend(uid types.UID) (ok bool) {
	m.mu.Lock()
	r := m.pods[uid]
	wrong := m.inexact[uid]
	// Before the write, so that a fault noted during it stays noted.
	delete(m.inexact, uid)
	m.mu.Unlock()
	var err error
	switch {
	// Also if nothing is known to be wrong: Release comes here for every record it
	// drops.
	case r == nil:
		err = m.cfg.Store.Delete(podPrefix + string(uid))
	case wrong:
		err = m.write(r)
	}
	if err != nil {
		m.cfg.Log.Warn("failed to correct the device record of a pod", zap.String("uid", string(uid)), zap.Error(err))
		// Retain comes back to it.
		m.mu.Lock()
		m.inexact[uid] = true
		m.mu.Unlock()
	}
	return err == nil
}

// turn keeps the writes and deletions of one pod's record in order. It is held over
// a call of the store, so only those wait for it that make one for the same pod. A
// pod may be released and admitted again within a moment: without order, the old
// deletion could remove the new record.
type turn struct {
	held  chan struct{} // has a value while somebody has the turn
	users int           // guarded by Manager.mu
}

// enter waits for the turn of a pod's record, and returns how to end it. It must
// not be called with Manager.mu held, and not twice by one goroutine. There is no
// deadline: the store has its own.
func (m *Manager) enter(uid types.UID) (leave func()) {
	m.mu.Lock()
	t := m.turns[uid]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		m.turns[uid] = t
	}
	t.users++
	m.mu.Unlock()
	// users was counted under the lock, so that nobody deletes the entry before the
	// turn comes.
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
