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

// Commit executes the choice: it reserves the devices, calls the plugins to allocate them, and
// stores the pod's record. After an error the pod has its former devices. The error is
// [ErrChanged] if the chosen devices are no longer available, a [*NotYetError] if a plugin went
// away meanwhile, and a [*PluginError] if a plugin refused. Commit blocks on plugins, at most for
// Config.Timeout per call, and on the store.
func (a *Admission) Commit() error {
	if !a.anyFresh() {
		return nil
	}
	// The order is reserve, allocate, store. While the plugin is called, other pods cannot get a
	// reserved device; and a record on disk has only devices that their plugin has allocated.
	if err := a.reserve(); err != nil {
		return err
	}
	err := a.allocate()
	// The device plugin API has no call that undoes Allocate. Devices that other plugins have
	// allocated become free, and are allocated again for the next pod.
	if err != nil {
		a.m.mu.Lock()
		a.undo()
		a.m.mu.Unlock()
		return err
	}
	// The record has the whole pod, including devices kept from before. One write replaces one
	// record, so that a crash leaves the old or the new one.
	rec := &record{Version: recordVersion, UID: a.pod.UID, Namespace: a.pod.Namespace, Name: a.pod.Name, live: true}
	for _, list := range a.held {
		for _, c := range list {
			rec.Held = append(rec.Held, c.Holding)
		}
	}
	a.m.mu.Lock()
	// The pod also has devices that are not known, so the next process must not consider the
	// record complete.
	rec.Lost = a.m.damaged[a.pod.UID] != nil
	a.m.mu.Unlock()
	return a.store(rec)
}

// store writes the pod's record and, if that succeeds and the pod was not released meanwhile,
// applies it. During the write, Manager.mu is not held. The pod's turn is held, so that a deletion
// by Release comes after the write.
func (a *Admission) store(rec *record) error {
	m := a.m
	defer m.enter(rec.UID)()
	err := m.write(rec)
	m.mu.Lock()
	// If Release was called during the write, the pod is not admitted, whatever the result of the
	// write.
	released := a.released
	if err != nil || released {
		a.undo()
		// If the disk was only slow, it may still write the record: after a restart the pod would
		// have devices that were given to others. Retain corrects the record.
		m.inexact[rec.UID] = true
		// Only from here on containers see the devices. Earlier, a crash would leave a started
		// pod with devices that are in no record.
	} else {
		a.replace(rec)
		delete(m.inexact, rec.UID)
		m.kubeletOutdated.Set()
	}
	m.mu.Unlock()
	if err == nil && released {
		// The record was written for a pod that no longer exists, so it is removed while the turn
		// is still held.
		m.amend(rec.UID)
		return fmt.Errorf("pod %s/%s was released while it was admitted", rec.Namespace, rec.Name)
	}
	return err
}

// replace makes rec the pod's record. The caller holds Manager.mu. The old devices are freed
// before the new ones are taken.
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

// anyFresh reports whether a plugin has to be called. A pod that keeps all devices needs neither
// a plugin nor a write, so it can start while the disk hangs.
func (a *Admission) anyFresh() bool {
	return slices.ContainsFunc(a.held, func(list []choice) bool {
		return slices.ContainsFunc(list, func(c choice) bool { return c.fresh })
	})
}

// reserve marks the devices as allocated, if all of them are still available. The first loop
// checks, the second marks. It does not block. It returns ErrChanged or an error of ready.
func (a *Admission) reserve() error {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending[a.pod.UID] != nil {
		return ErrChanged // two commits of the pod at the same time
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
			// A new plugin may use the same IDs for other devices, so the choice has to be made
			// again with its list and options.
			if r.session != a.views[c.Resource].session {
				return ErrChanged
			}
			for _, d := range c.Devices {
				now, ok := find(r.devices, d.ID)
				// Devices in an old record of the same pod are available to it.
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

// undo frees the devices that reserve took and the pod did not have before. Manager.mu is held.
// It uses the current record, which may have changed since reserve.
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
	// Devices that the pod had before, some of which it may have chosen again, are marked as its
	// own again.
	if old := m.pods[a.pod.UID]; old != nil {
		for _, h := range old.Held {
			for _, d := range h.Devices {
				if _, taken := m.resources[h.Resource].taken[d.ID]; !taken {
					m.resources[h.Resource].taken[d.ID] = a.pod.UID
				}
			}
		}
	}
	// Pods that wait, or found too few devices, may get these devices now.
	m.subs.Publish(Change{Resources: freed})
}

// allocate calls the plugins. Calls to one plugin follow one another; different plugins are
// called in parallel, so that a slow plugin does not delay others. It returns when all calls have
// returned or timed out.
func (a *Admission) allocate() error {
	perResource := map[string][]*choice{}
	for i, list := range a.held {
		a.held[i] = slices.Clone(list) // a copy, since the list is shared
		for j := range a.held[i] {
			// A pointer into the clone, so that call stores the answer in it. Goroutines write to
			// different elements, which needs no lock.
			if c := &a.held[i][j]; c.fresh {
				perResource[c.Resource] = append(perResource[c.Resource], c)
			}
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	// The lock guards only failed.
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
	for _, name := range sortedKeys(failed) { // the first by name, for a deterministic result
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

// call calls a plugin to allocate one container's devices. It blocks at most for Config.Timeout;
// the kubelet has no such limit. Failed calls are included in the histogram, which makes a hanging
// plugin visible.
func (a *Admission) call(c *choice) error {
	s := a.views[c.Resource].session
	ctx, done := context.WithTimeout(a.ctx, a.m.cfg.Timeout)
	defer done()
	start := time.Now()
	got, err := s.plugin.Allocate(ctx, c.ids())
	a.m.met.allocate.WithLabelValues(c.Resource).Observe(time.Since(start).Seconds())
	if err == nil {
		// Sorted, so that equal answers give equal bytes and checksums.
		got.sort()
		c.Attachment = got
		return nil
	}
	a.m.cfg.Log.Warn("device plugin failed to allocate devices", zap.String("resource", c.Resource), zap.Strings("devices", c.ids()),
		zap.String("namespace", a.pod.Namespace), zap.String("pod", a.pod.Name), zap.Error(err))
	return a.blame(s, "Allocate", err)
}

// blame converts a plugin's error to the error for the pod. Depending on it, the pod waits, is
// admitted again, or is rejected. A pod is rejected only for an error that the plugin itself
// returned, not if the plugin went away or was replaced.
func (a *Admission) blame(s *session, call string, err error) error {
	m := a.m
	m.mu.Lock()
	defer m.mu.Unlock()
	// If the plugin's watch has ended, its reason says more than the error of the call.
	if notYet := m.ready(m.resources[s.resource], time.Now()); notYet != nil {
		return notYet
	}
	if s.ctx.Err() != nil {
		return ErrChanged // another plugin has taken over the resource
	}
	if errors.Is(err, ErrAway) {
		// The plugin went away, and its watch has not ended yet. If this happens a second time
		// for the pod, its devices may crash the plugin, and the pod would wait forever. The
		// count is removed with the pod.
		m.lostCalls[a.pod.UID]++
		if m.lostCalls[a.pod.UID] == 1 {
			return &NotYetError{Resource: s.resource, Why: "its plugin went away: " + err.Error(), Until: time.Now().Add(grace)}
		}
	}
	return &PluginError{s.resource, call, err}
}
