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

// Commit makes the choice true: it reserves the devices, has the plugins allocate
// them, and stores what the pod has. When it fails the pod has what it had before.
// The error is [ErrChanged] if the choice can no longer be made, a [*NotYetError]
// if a plugin went away over it, and a [*PluginError] if one refused. It blocks for
// as long as plugins and the store take, each call of a plugin for Config.Timeout
// at most.
func (a *Admission) Commit() error {
	if !a.anyFresh() {
		return nil
	}
	// The order is reserve, allocate, store: a device that is reserved goes to no
	// other pod while its plugin is asked, and a record on disk says nothing that a
	// plugin has not agreed to.
	if err := a.reserve(); err != nil {
		return err
	}
	err := a.allocate()
	// The device plugin API has no call that undoes Allocate. What other plugins
	// have allocated is given to the next pod that gets the device, for which they
	// are asked again.
	if err != nil {
		a.m.mu.Lock()
		a.undo()
		a.m.mu.Unlock()
		return err
	}
	// The whole pod, also what it kept from before: one write replaces one record,
	// so that a crash leaves the old or the new one and no mixture.
	rec := &record{Version: recordVersion, UID: a.pod.UID, Namespace: a.pod.Namespace, Name: a.pod.Name, live: true}
	for _, list := range a.held {
		for _, c := range list {
			rec.Held = append(rec.Held, c.Holding)
		}
	}
	a.m.mu.Lock()
	// The pod has devices beside these that are not known. The next process must
	// not believe the record to be complete.
	rec.Lost = a.m.blind[a.pod.UID] != nil
	a.m.mu.Unlock()
	return a.store(rec)
}

// store writes what the pod has, and makes it true if that succeeds and the pod was
// not released meanwhile. The store is never called with Manager.mu held. The pod's
// turn is held over the write, so that a deletion by Release comes after it.
func (a *Admission) store(rec *record) error {
	m := a.m
	defer m.enter(rec.UID)()
	err := m.write(rec)
	m.mu.Lock()
	// Release may have come while the disk was busy; the pod is then not admitted,
	// whatever the disk says.
	released := a.released
	if err != nil || released {
		a.undo()
		// A disk that hung may write it yet, when it answers: after a restart the pod would
		// have devices that were given to others. Retain has it say what is so.
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
		// The record has just been written for a pod that no longer exists: it goes
		// while the turn is still held.
		m.amend(rec.UID)
		return fmt.Errorf("pod %s/%s was released while it was admitted", rec.Namespace, rec.Name)
	}
	return err
}

// replace gives the pod what a record says, and nothing else. Manager.mu is held.
// Old devices go first: those in both records are taken again by the loop after it.
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

// anyFresh reports whether a plugin has to be asked. A pod that kept everything
// needs neither a plugin nor a write, which lets it start while the disk hangs.
func (a *Admission) anyFresh() bool {
	return slices.ContainsFunc(a.held, func(list []choice) bool {
		return slices.ContainsFunc(list, func(c choice) bool { return c.fresh })
	})
}

// reserve takes the devices, if they can still be had. All or nothing: the first
// loop checks, the second takes. It does not block. Errors are ErrChanged and those
// of ready.
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
			// A new plugin may know the same IDs by other devices. The choice is
			// made again with its list and its options.
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

// undo gives back what reserve took and the pod did not have before. Manager.mu is
// held. It works from the present records: the old record counts, whatever has
// changed since reserve.
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
	// What the pod had before the attempt, and may have chosen again, is its own
	// once more.
	if old := m.pods[a.pod.UID]; old != nil {
		for _, h := range old.Held {
			for _, d := range h.Devices {
				if _, taken := m.resources[h.Resource].taken[d.ID]; !taken {
					m.resources[h.Resource].taken[d.ID] = a.pod.UID
				}
			}
		}
	}
	// Pods that were told to wait, or found too few, can have these devices now.
	m.subs.Publish(Change{Resources: freed})
}

// allocate makes the calls: one after the other to each plugin, to different
// plugins at the same time. A slow plugin does not add its time to that of others.
// allocate returns when all have answered or run out of time.
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

// call has a plugin allocate what one container is to have. The call blocks for
// Config.Timeout at most, which the kubelet does not bound. A failed call counts in
// the histogram as well: a plugin that hangs shows there.
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
	a.m.cfg.Log.Warn("a plugin did not allocate", zap.String("resource", c.Resource), zap.Strings("devices", c.ids()),
		zap.String("namespace", a.pod.Namespace), zap.String("pod", a.pod.Name), zap.Error(err))
	return a.blame(s, "Allocate", err)
}

// blame makes of a plugin's error what it means for the pod: to wait, to begin
// again, or to be rejected. A pod is rejected only for what its plugin said; that a
// plugin went away or was replaced is no reason.
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
		// It has gone, and its watch has not told yet. Once can be chance.
		// The second time may be the pod's doing: a device that crashes its plugin
		// would have the pod wait for ever. Strikes are forgotten with the pod.
		m.strikes[a.pod.UID]++
		if m.strikes[a.pod.UID] == 1 {
			return &NotYetError{Resource: s.resource, Why: "its plugin went away: " + err.Error(), Until: time.Now().Add(m.cfg.Grace)}
		}
	}
	return &PluginError{s.resource, call, err}
}
