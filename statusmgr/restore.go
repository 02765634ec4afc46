package statusmgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Loader is a [Sink] that knows what it published in an earlier life of the
// agent, by the UIDs of the objects that it was given.
type Loader interface {
	Load(ctx context.Context) (map[types.UID]v1.PodStatus, error)
}

// Restore reads the statuses of before a restart: those that the sink had not
// taken, which it is told of again, and those that it can load. Until the
// first [Manager.Set] of a pod they are what [Manager.Get] returns, and they
// are what that one changes: start times, transition times, restart counts and
// a terminal phase stay. It is for the agent to call before it takes up any
// pod; [Manager.Run] does, if nobody has. What can be read is in effect even
// if it returns an error. A value that cannot be understood is removed, and
// logged.
func (m *Manager) Restore(ctx context.Context) error {
	m.restoring.Lock()
	defer m.restoring.Unlock()
	if m.restored {
		return nil
	}
	var shown map[types.UID]v1.PodStatus
	var err error
	if l, ok := m.cfg.Sink.(Loader); ok {
		if shown, err = l.Load(ctx); err != nil {
			err = fmt.Errorf("statusmgr: load what was published: %w", err)
		}
	}
	for uid, st := range shown {
		m.adopt(record{Meta: metav1.ObjectMeta{UID: uid}, Status: st}, &st, false)
	}
	err = errors.Join(err, m.restoreUnsent(shown))
	m.restored = err == nil
	return err
}

// restoreUnsent reads the store.
func (m *Manager) restoreUnsent(shown map[types.UID]v1.PodStatus) error {
	if m.cfg.Store == nil {
		return nil
	}
	keys, err := m.cfg.Store.Keys()
	if err != nil {
		return fmt.Errorf("statusmgr: list stored statuses: %w", err)
	}
	var errs []error
	for _, key := range keys {
		value, err := m.cfg.Store.Read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("statusmgr: stored status: %w", err))
			continue
		}
		rec, err := parseRecord(key, value)
		if err != nil {
			m.cfg.Log.Error("a stored status was removed", zap.Error(err), zap.NamedError("removal", m.cfg.Store.Delete(key)))
			continue
		}
		var was *v1.PodStatus
		if st, ok := shown[rec.Meta.UID]; ok {
			was = &st
		}
		m.adopt(rec, was, true)
	}
	return errors.Join(errs...)
}

// adopt makes an entry of a status of before, unless the pod was Set since.
func (m *Manager) adopt(r record, shown *v1.PodStatus, unsent bool) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := r.Meta.UID
	if e := m.entries[uid]; e == nil || e.restored {
		m.serial++
		e = &entry{pod: &v1.Pod{ObjectMeta: r.Meta, Status: v1.PodStatus{}}, status: &r.Status, version: m.serial, finished: r.Finished, restored: true}
		if shown != nil {
			e.shown, e.shownAs = shown, uid
		}
		if !unsent {
			e.published = e.version
		}
		e.urgent = unsent
		m.entries[uid] = e
		if unsent {
			m.store.stored[uid] = e.version
		}
	} else if unsent {
		m.store.stored[uid] = 1 // older than any that may be written
	}
}

// PreviousReady returns what the last status said of a container, for those
// who compute the next one while no probe has a result: a restart of the agent
// is no reason to call a container unready. known is false for a container
// that did not run.
func (m *Manager) PreviousReady(uid types.UID, containerID string) (ready, started, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	if e == nil {
		return false, false, false
	}
	for _, list := range [...][]v1.ContainerStatus{e.status.ContainerStatuses, e.status.InitContainerStatuses} {
		for i := range list {
			if c := &list[i]; c.State.Running != nil && sameContainer(c.ContainerID, containerID) {
				return c.Ready, c.Started != nil && *c.Started, true
			}
		}
	}
	return false, false, false
}
