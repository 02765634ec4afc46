package statusmgr

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/podmeta"
)

// The start after a restart. Two sources know statuses of before: the sink, what
// was published, and the store, what was not yet. Both are adopted as entries that
// the first Set of each pod is compared with.

// Loader is a [Sink] that can read the statuses published before a restart of the agent. Load
// returns them by the UIDs of the objects that they were published under. With an error it may
// return the statuses that could be read.
type Loader interface {
	Load(ctx context.Context) (map[types.UID]v1.PodStatus, error)
}

// Pruner is a [Sink] that stores statuses. Prune drops the statuses of pods that are not in keep.
// The Manager does not call it: the caller has to know all pods.
type Pruner interface {
	Prune(keep map[types.UID]bool) error
}

// Restore reads the statuses from before a restart: the unpublished ones from Config.Store, and
// the published ones if the sink is a [Loader]. [Manager.Get] returns them until the first
// [Manager.Set] of the pod, which keeps their start times, transition times, restart counts and
// terminal phase. With an error, the statuses that could be read are in effect. A value that
// cannot be parsed is removed and logged.
//
// The agent calls it before the first [Manager.Adopt]. [Manager.Run] calls it if that has not
// happened, and repeats it after an error until it succeeds.
func (m *Manager) Restore(ctx context.Context) error {
	// Run calls Restore as well: the second caller waits, and finds the work done.
	m.restoring.Lock()
	defer m.restoring.Unlock()
	if m.restored {
		return nil
	}
	var loaded map[types.UID]v1.PodStatus
	var err error
	if l, ok := m.cfg.Sink.(Loader); ok {
		// An error does not keep the stored statuses from being read: each is of
		// use without the other.
		if loaded, err = l.Load(ctx); err != nil {
			err = fmt.Errorf("statusmgr: load published statuses: %w", err)
		}
	}
	for uid, st := range loaded {
		m.adopt(record{Meta: metav1.ObjectMeta{UID: uid}, Status: st}, &st, false)
	}
	err = errors.Join(err, m.restoreUnsent(loaded))
	// After an error the next call, by Run, tries again.
	m.restored = err == nil
	return err
}

// Waits between the tries of Run to restore statuses.
const (
	restoreFirst = 10 * time.Second
	restoreMax   = 5 * time.Minute
)

// restoreLate calls Restore until it succeeds or ctx ends. A disk that hung at the start may have
// the final status of a pod, which cannot be computed again.
func (m *Manager) restoreLate(ctx context.Context) {
	back := retry.Backoff{First: restoreFirst, Max: restoreMax}
	for retry.Sleep(ctx, back.Next()) {
		if err := m.Restore(ctx); err == nil {
			m.cfg.Log.Info("restored statuses")
			return
		}
	}
}

// restoreUnsent adopts the statuses in Config.Store. If one value cannot be read, the others are
// still read.
func (m *Manager) restoreUnsent(loaded map[types.UID]v1.PodStatus) error {
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
		// A crash in the middle of the write: the status was not stored.
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("statusmgr: read stored status: %w", err))
			continue
		}
		rec, err := parseRecord(key, value)
		if err != nil {
			m.cfg.Log.Error("stored status is invalid; removing it", zap.String("key", key), zap.Error(err), zap.NamedError("removal", m.cfg.Store.Delete(key)))
			continue
		}
		var was *v1.PodStatus
		if st, ok := loaded[rec.Meta.UID]; ok {
			was = &st
		}
		m.adopt(rec, was, true)
	}
	return errors.Join(errs...)
}

// adopt makes an entry of a status from before the restart, unless the pod was Set since then.
func (m *Manager) adopt(r record, loaded *v1.PodStatus, unsent bool) {
	// store.mu comes before mu where both are held.
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := r.Meta.UID
	old := m.entries[uid]
	running := m.ctx != nil
	if old != nil && !old.restored {
		if unsent {
			m.store.stored[uid] = stored{version: 1} // older than any that may be written
			if running {
				m.saveSoon(uid)
			}
		}
		return
	}
	// A later try adds what the earlier ones could not read, and begins nothing anew.
	if old != nil && running && (!unsent || m.store.stored[uid] != stored{}) {
		return
	}
	if old != nil {
		m.advance(old, input{event: onRemove})
	}
	m.serial++
	if unsent {
		m.store.stored[uid] = stored{version: m.serial}
	}
	e := m.newEntry(uid)
	// There is no spec: whatever needs one waits for the first Set.
	e.pod, e.status, e.restored = &v1.Pod{ObjectMeta: r.Meta}, &r.Status, true
	e.life, e.why = r.Life, r.why()
	// A pod that was finished before its deletion was asked for has left its directory
	// and its containers: they go first, and then it is finished again.
	e.finished = r.Finished && r.Meta.DeletionTimestamp != nil
	// Another life of a static pod may run since, and what shows it is not known yet.
	if !podmeta.IsStatic(e.pod) {
		e.shown = Itself(e.pod)
		if r.Stopped {
			e.runs = observed.No
		}
	}
	if loaded != nil {
		e.sent, e.sentTo = loaded, uid
	}
	final, deletion := e.facts()
	m.advance(e, input{event: onRestore, final: final, deletion: deletion, version: m.serial, unsent: unsent, loaded: loaded != nil})
	if running {
		m.begin(uid, e)
	}
}

// begin begins the publication of an entry that was made before Run. The caller holds m.mu.
func (m *Manager) begin(uid types.UID, e *entry) {
	m.saveSoon(uid)
	if m.cfg.Sink != nil {
		m.advance(e, input{event: onStart})
	}
}

// Adopt is called for a pod before its first status is computed. It drops a stored status from
// before a restart if the API's object has a newer one.
func (m *Manager) Adopt(pod *v1.Pod, shown Shown) {
	if shown.Object == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[pod.UID]; e != nil && e.unsure && isNewer(&shown.Object.Status, e.status) {
		m.drop(pod.UID, e)
	}
}

// isNewer reports whether a status is newer than a stored one of the pod, by restart counts and
// observed generations, which never decrease. Times are not compared: a clock may be set back.
func isNewer(st, stored *v1.PodStatus) bool {
	if st.ObservedGeneration != stored.ObservedGeneration {
		return st.ObservedGeneration > stored.ObservedGeneration
	}
	for _, lists := range [][2][]v1.ContainerStatus{
		{st.ContainerStatuses, stored.ContainerStatuses}, {st.InitContainerStatuses, stored.InitContainerStatuses},
	} {
		for i := range lists[0] {
			c := &lists[0][i]
			if j := indexOf(lists[1], i, c.Name); j >= 0 && c.RestartCount > lists[1][j].RestartCount {
				return true
			}
		}
	}
	return false
}

// PreviousReady returns Ready and Started of a container from the last status. A caller uses them
// in the next status until probes have results, so that a restart of the agent does not make a
// container unready. known is false for a container that did not run.
func (m *Manager) PreviousReady(uid types.UID, containerID string) (ready, started, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil {
		return ReadyIn(e.status, containerID)
	}
	return false, false, false
}

// ReadyIn returns Ready and Started of a container from a status. The result known is false for a
// container that did not run.
func ReadyIn(st *v1.PodStatus, containerID string) (ready, started, known bool) {
	for _, list := range [...][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if c := &list[i]; c.State.Running != nil && sameContainer(c.ContainerID, containerID) {
				return c.Ready, c.Started != nil && *c.Started, true
			}
		}
	}
	return false, false, false
}
