package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Commit executes the choice: it reserves the devices, calls the plugins to
// allocate them, and stores the pod's record. After an error the pod has its former
// devices. The error is [ErrChanged] if the chosen devices are no longer available,
// a [*NotYetError] if a plugin went away meanwhile, and a [*PluginError] if a
// plugin refused. It blocks on plugins, at most Config.Timeout for each call, and
// on the store.
func (a *Admission) Commit() error {
	if !a.anyFresh() {
		return nil
	}
	// The order is reserve, allocate, store: a reserved device is not given to
	// other pods while its plugin is called, and a record on disk contains only
	// devices that their plugin has allocated.
	if err := a.reserve(); err != nil {
		return err
	}
	err := a.allocate()
	// The device plugin API has no call that undoes Allocate. Devices that other plugins have
	// allocated are free again, and are allocated again for the next pod.
	if err != nil {
		a.m.mu.Lock()
		a.undo()
		a.m.mu.Unlock()
		return err
	}
	// The record has the whole pod, with the devices kept from before: one write
	// replaces one record, so that a crash leaves the old or the new one.
	rec := &record{Version: recordVersion, UID: a.pod.UID, Namespace: a.pod.Namespace, Name: a.pod.Name, live: true}
	for _, list := range a.held {
		for _, c := range list {
			rec.Held = append(rec.Held, c.Holding)
		}
	}
	a.m.mu.Lock()
	// The pod has other devices that are not known: the next process must not take
	// the record for complete.
	rec.Lost = a.m.blind[a.pod.UID] != nil
	a.m.mu.Unlock()
	return a.store(rec)
}

// store writes the pod's record and, if that succeeds and the pod was not released
// meanwhile, applies it. Manager.mu is not held during the write. The pod's turn
// is, so that a deletion by Release comes after it.
func (a *Admission) store(rec *record) error {
	m := a.m
	defer m.enter(rec.UID)()
	err := m.write(rec)
	m.mu.Lock()
	// Release may have been called during the write; the pod is then not admitted,
	// whatever the result of the write.
	released := a.released
	if err != nil || released {
		a.undo()
		// A disk that hung may still write the record: after a restart the pod
		// would have devices that were given to others. Retain corrects the record.
		m.inexact[rec.UID] = true
		// Only now do containers see the devices: before, a crash would have started a
		// pod with devices that no record names.
	} else {
		a.replace(rec)
		delete(m.inexact, rec.UID)
		m.tell()
	}
	m.mu.Unlock()
	if err == nil && released {
		// The record was written for a pod that no longer exists: it is removed
		// while the turn is still held.
		m.amend(rec.UID)
		return fmt.Errorf("pod %s/%s was released while it was admitted", rec.Namespace, rec.Name)
	}
	return err
}

// replace makes rec the pod's record. Manager.mu is held. Old devices are freed
// first; the second loop takes those again that are in both records.
func (a *Admission) replace(rec *record) {
	m := a.m
	if old := m.pods[rec.UID]; old != nil {
		for _, h := range old.Held {
			m.free(h, rec.UID)
		}
	}
	for _, h := range rec.Held {
		for _, d := range h.Devices {
			m.resources[h.Resource].taken[d.ID] = rec.UID
		}
	}
	m.pods[rec.UID] = rec
	delete(m.pending, rec.UID)
}

// anyFresh reports whether a plugin has to be called. A pod that keeps everything
// needs neither a plugin nor a write, so that it can start while the disk hangs.
func (a *Admission) anyFresh() bool {
	return slices.ContainsFunc(a.held, func(list []choice) bool {
		return slices.ContainsFunc(list, func(c choice) bool { return c.fresh })
	})
}

// reserve marks the devices as allocated, if all of them are still available: the
// first loop checks, the second marks. It does not block. Errors are ErrChanged and
// those of ready.
func (a *Admission) reserve() error {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending[a.pod.UID] != nil {
		return ErrChanged // twice at the same time
	}
	now := time.Now()
	for _, list := range a.held {
		for _, c := range list {
			if !c.fresh {
				continue
			}
			r := m.resources[c.Resource]
			if err := m.ready(r, now); err != nil {
				return err
			}
			// A new plugin may use the same IDs for other devices. The choice is
			// made again with its list and options.
			if r.session != a.views[c.Resource].session {
				return ErrChanged
			}
			for _, d := range c.Devices {
				now, ok := find(r.devices, d.ID)
				// Devices that an old record of the same pod holds are its own.
				owner, taken := r.taken[d.ID]
				if !ok || !now.Healthy || taken && owner != a.pod.UID {
					return ErrChanged
				}
			}
		}
	}
	m.pending[a.pod.UID] = a
	for _, list := range a.held {
		for _, c := range list {
			for _, d := range c.Devices {
				if c.fresh {
					m.resources[c.Resource].taken[d.ID] = a.pod.UID
				}
			}
		}
	}
	return nil
}

// undo frees the devices that reserve took and the pod did not have before.
// Manager.mu is held. It works from the current record, whatever has changed since
// reserve.
func (a *Admission) undo() {
	m := a.m
	delete(m.pending, a.pod.UID)
	var freed []string
	for _, list := range a.held {
		for _, c := range list {
			if c.fresh {
				m.free(c.Holding, a.pod.UID)
				freed = append(freed, c.Resource)
			}
		}
	}
	// Devices that the pod had before the attempt, and may have chosen again, are
	// marked as its own again.
	if old := m.pods[a.pod.UID]; old != nil {
		for _, h := range old.Held {
			for _, d := range h.Devices {
				if _, taken := m.resources[h.Resource].taken[d.ID]; !taken {
					m.resources[h.Resource].taken[d.ID] = a.pod.UID
				}
			}
		}
	}
	// Pods that wait, or found too few devices, may get these now.
	m.subs.Publish(Change{Resources: freed})
}

// allocate calls the plugins: one call after the other to each plugin, different
// plugins in parallel, so that a slow plugin does not delay others. It returns when
// all calls have returned or timed out.
func (a *Admission) allocate() error {
	perResource := map[string][]*choice{}
	for i, list := range a.held {
		a.held[i] = slices.Clone(list) // the value is shared
		for j := range a.held[i] {
			// Pointers into the clone: call writes the answer in its place.
			// Goroutines write to different elements, which needs no lock.
			if c := &a.held[i][j]; c.fresh {
				perResource[c.Resource] = append(perResource[c.Resource], c)
			}
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	// The lock guards failed alone.
	failed := map[string]error{}
	for name, list := range perResource {
		wg.Go(func() {
			for _, c := range list {
				if err := a.call(c); err != nil {
					mu.Lock()
					failed[name] = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	for _, name := range sortedKeys(failed) { // the first by name, so that it is always the same one
		return failed[name]
	}
	return nil
}

// sortedKeys returns the keys of m in ascending order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// call calls a plugin to allocate one container's devices. It blocks for
// Config.Timeout at most; the kubelet has no limit. A failed call is observed in
// the histogram as well, so that a hanging plugin is visible there.
func (a *Admission) call(c *choice) error {
	s := a.views[c.Resource].session
	ctx, done := context.WithTimeout(a.ctx, a.m.cfg.Timeout)
	defer done()
	start := time.Now()
	got, err := s.plugin.Allocate(ctx, c.ids())
	a.m.met.allocate.WithLabelValues(c.Resource).Observe(time.Since(start).Seconds())
	if err == nil {
		// Stored sorted, so that the same answer has the same bytes and checksum.
		got.sort()
		c.Attachment = got
		return nil
	}
	a.m.cfg.Log.Warn("plugin failed to allocate", zap.String("resource", c.Resource), zap.Strings("devices", c.ids()),
		zap.String("namespace", a.pod.Namespace), zap.String("pod", a.pod.Name), zap.Error(err))
	return a.blame(s, "Allocate", err)
}

// blame converts a plugin's error to the error for the pod: wait, begin again, or
// be rejected. A pod is rejected only for an error that the plugin returned, not
// because the plugin went away or was replaced.
func (a *Admission) blame(s *session, call string, err error) error {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	// The watch of the plugin has noticed before the call failed: its reason is
	// better than the call's.
	if notYet := m.ready(m.resources[s.resource], time.Now()); notYet != nil {
		return notYet
	}
	if s.ctx.Err() != nil {
		return ErrChanged // another plugin has taken over
	}
	if errors.Is(err, ErrAway) {
		// The plugin went away, and its watch has not ended yet. The first time may
		// be chance. The second time may be the pod's doing: a device that crashes
		// its plugin would make the pod wait forever. Strikes are removed with the
		// pod.
		m.strikes[a.pod.UID]++
		if m.strikes[a.pod.UID] == 1 {
			return &NotYetError{Resource: s.resource, Why: "its plugin went away: " + err.Error(), Until: time.Now().Add(m.cfg.Grace)}
		}
	}
	return &PluginError{s.resource, call, err}
}
