package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
)

// Records between memory and the store. Every change of a claim is saved; after a
// restart records are adopted, and Retain undoes those of pods that are gone.

// errRestored is for a Restore that has no use.
var errRestored = errors.New("claims of before the restart were read already")

// Restore reads the stored claims after a restart. Call it before Run. running
// names the running containers by pod; nil means that they are not known, and that
// every container may run. An error means that nothing could be read: call Restore
// again; otherwise this process does not undo the claims of earlier pods. After a
// success every other call returns an error. A single record that cannot be read is
// logged and counted; Run tries again.
func (m *Manager) Restore(running map[types.UID][]string) error {
	m.restoring.Lock()
	defer m.restoring.Unlock()
	if m.restored {
		return errRestored
	}
	// Before anything is changed, so that Restore can be called again after an error.
	keys, err := m.cfg.Store.Keys()
	if err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	m.restored, m.blind = true, running == nil
	m.mu.Lock()
	for uid, names := range running {
		if len(names) > 0 {
			m.alive[uid] = true
		}
	}
	m.mu.Unlock()
	// Before the agent's own records: the file of a kubelet that ran in between is
	// newer.
	theirs := m.fromKubelet()
	for _, r := range theirs {
		m.inherit(r)
	}
	for _, key := range keys {
		uid, ours := strings.CutPrefix(key, claimPrefix)
		if !ours || slices.ContainsFunc(theirs, func(r *record) bool { return r.UID == types.UID(uid) }) {
			continue
		}
		r, again, err := m.read(types.UID(uid))
		if err == nil {
			m.adopt(r)
			continue
		}
		if again {
			m.unread = append(m.unread, types.UID(uid))
			// A damaged record has nothing to offer to the next start either.
		} else if gone := m.cfg.Store.Delete(key); gone != nil {
			err = errors.Join(err, gone)
		}
		m.met.damaged.Inc()
		m.cfg.Log.Error("found damaged record of claim; it is rebuilt when its pods are synced", zap.String("uid", uid), zap.Error(err))
	}
	return nil
}

// reread adopts records that could not be read before; Retain then finds the pods
// that are gone. A claim that pods use meanwhile has a newer record. It runs once,
// on a goroutine that Run waits for; only it uses unread by then.
func (m *Manager) reread(ctx context.Context) {
	wait := retry.Backoff{First: firstRetry, Max: lastRetry}
	for len(m.unread) > 0 && wait.Wait(ctx) {
		for _, uid := range m.unread {
			r, again, err := m.read(uid)
			if again {
				break // the disk does not work yet
			}
			m.unread = m.unread[1:]
			if err == nil {
				m.adopt(r)
				m.cfg.Log.Info("read the record of a claim", zap.String("uid", string(uid)))
			}
		}
	}
}

// read reads one record, without Manager.mu. again means that the disk failed, and
// that the record may be intact; any other error means that the record is lost.
func (m *Manager) read(uid types.UID) (r *record, again bool, err error) {
	key := claimPrefix + string(uid)
	value, err := m.cfg.Store.Read(key)
	if err == nil {
		if r, err = parseRecord(uid, value); err == nil {
			return r, false, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, true, err
	}
	return nil, false, err
}

// adopt adds a record to memory, unless its claim is known already. It writes
// nothing and calls no driver.
func (m *Manager) adopt(r *record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims[r.UID] != nil {
		return
	}
	c := &claim{ClaimRef: ClaimRef{r.Namespace, r.Name, r.UID}, pods: map[types.UID]*podRef{}, parts: map[string]*part{}}
	if other := m.byName[c.String()]; other != nil {
		// One was deleted by force, and made again. Both have to be undone.
		m.cfg.Log.Warn("found two claims with the same name", zap.String("claim", c.String()), zap.String("uid", string(c.UID)), zap.String("other", string(other.UID)))
	} else {
		m.byName[c.String()] = c
	}
	m.claims[c.UID] = c
	used := m.blind
	for _, p := range r.Pods {
		used = used || m.alive[p.UID]
		p.given = true
		m.refer(c, p)
	}
	// Devices may need set-up after a boot. A running container proves that the
	// machine was not booted since, if nothing else does.
	same := r.Boot == m.cfg.Boot && (m.cfg.Boot != "" || used)
	for _, d := range r.Drivers {
		// The record does not contain whether the driver was called before the
		// crash. An unneeded Unprepare is safe; a missing one is not.
		p := &part{called: true}
		if d.Prepared && same {
			p.prepared, p.devices = true, d.Devices
		}
		c.parts[d.Name] = p
	}
	// The record on disk is this one.
	c.saved = c.gen
}

// save writes the records of claims. A claim that no pod uses any more is removed,
// and its record deleted.
func (m *Manager) save(claims ...*claim) error {
	var errs []error
	for _, c := range claims {
		if err := m.saveOne(c); err != nil {
			errs = append(errs, &ClaimError{c.String(), fmt.Errorf("store its record: %w", err)})
		}
	}
	return errors.Join(errs...)
}

// saveOne stores a claim as it is now, if anything has changed since it was stored.
// It blocks for as long as the store does, and other saves of the same claim wait.
func (m *Manager) saveOne(c *claim) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	m.mu.Lock()
	if c.gen == c.saved {
		m.mu.Unlock()
		return nil
	}
	// A snapshot under the lock; the write is outside of it. gen says which changes
	// the write covers.
	gen, over, r := c.gen, len(c.pods) == 0, c.record(m.cfg.Boot)
	m.mu.Unlock()
	key := claimPrefix + string(c.UID)
	var err error
	if over {
		err = m.cfg.Store.Delete(key)
	} else {
		var value []byte
		if value, err = json.Marshal(r); err == nil {
			err = m.cfg.Store.Write(key, value)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A pod may have taken the claim during the deletion: then the claim is kept,
	// and the pod's own save writes the record again.
	if over && c.gen == gen {
		// If the deletion failed, the pods of the record are found to be gone after
		// a restart.
		m.forget(c)
	}
	if err == nil {
		c.saved = max(c.saved, gen)
		m.tellSoon()
	}
	return err
}

// forget drops a claim. Manager.mu is held.
func (m *Manager) forget(c *claim) {
	delete(m.claims, c.UID)
	if m.byName[c.String()] == c {
		delete(m.byName, c.String())
		for _, other := range m.claims { // a second claim of the same name
			if other.String() == c.String() {
				m.byName[c.String()] = other
			}
		}
	}
}
