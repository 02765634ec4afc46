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

// Saving and restoring records. Every change of a claim is saved. After a restart, records are
// adopted, and Retain unprepares the claims of pods that are gone.

// errRestored is the error of a second Restore.
var errRestored = errors.New("claim records were restored already")

// Restore reads the stored claims after a restart. Call it before Run. running has the names of
// the running containers, by pod. If it is nil, every container may be running.
//
// An error means that nothing could be read. Call Restore again; otherwise this process does not
// unprepare the claims of earlier pods. After a success, every further call returns an error. A
// single record that cannot be read is logged and counted; Run tries again.
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
	// Before the agent's own records, since the file of a kubelet that ran in between is newer.
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
			// The record is deleted, since it will not be readable at the next start either.
		} else if gone := m.cfg.Store.Delete(key); gone != nil {
			err = errors.Join(err, gone)
		}
		m.met.damaged.Inc()
		m.cfg.Log.Error("found damaged record of claim; it is rebuilt when its pods are synced", zap.String("uid", uid), zap.Error(err))
	}
	return nil
}

// reread adopts records that could not be read before. After that, Retain finds those whose pods
// are gone. If pods have used a claim meanwhile, its record is newer and stays. It runs once, on
// a goroutine that Run waits for, and is the only user of unread by then.
func (m *Manager) reread(ctx context.Context) {
	wait := retry.Backoff{First: firstRetry, Max: lastRetry}
	for len(m.unread) > 0 && wait.Wait(ctx) {
		for _, uid := range m.unread {
			r, again, err := m.read(uid)
			if again {
				break // the disk still fails
			}
			m.unread = m.unread[1:]
			if err == nil {
				m.adopt(r)
				m.cfg.Log.Info("read the record of a claim", zap.String("uid", string(uid)))
			}
		}
	}
}

// read reads one record, without Manager.mu. The result again says that the disk failed and the
// record may be intact. After any other error the record is lost.
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

// adopt adds a record to memory, unless its claim is known. It writes nothing and calls no
// driver.
func (m *Manager) adopt(r *record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims[r.UID] != nil {
		return
	}
	c := newClaim(ClaimRef{r.Namespace, r.Name, r.UID})
	if other := m.byName[c.String()]; other != nil {
		// One claim was deleted by force and created again. Both have to be unprepared.
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
	// After a boot, devices may need to be prepared again. A running container proves that the
	// machine has not rebooted since.
	same := r.Boot == m.cfg.Boot && (m.cfg.Boot != "" || used)
	for _, d := range r.Drivers {
		// The record does not say whether the driver was called before the crash. An unnecessary
		// Unprepare is harmless; a missing one is not.
		p := &part{called: true}
		if d.Prepared && same {
			p.prepared, p.devices = true, d.Devices
		}
		c.parts[d.Name] = p
	}
	// Memory equals the record on disk.
	c.saved = c.gen
}

// save writes the records of claims. The record of a claim that no pod uses is deleted, and the
// claim removed.
func (m *Manager) save(claims ...*claim) error {
	var errs []error
	for _, c := range claims {
		if err := m.saveOne(c); err != nil {
			errs = append(errs, &ClaimError{c.String(), fmt.Errorf("store its record: %w", err)})
		}
	}
	return errors.Join(errs...)
}

// saveOne stores a claim if it has changed since it was stored. It blocks as long as the store
// does, and other saves of the same claim wait.
func (m *Manager) saveOne(c *claim) error {
	c.saving <- struct{}{}
	defer func() { <-c.saving }()
	m.mu.Lock()
	if c.gen == c.saved {
		m.mu.Unlock()
		return nil
	}
	// A snapshot is taken under the lock and written without it. gen says which changes the write
	// includes.
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
	// A pod may have begun to use the claim during the deletion. Then the claim is kept, and the
	// pod's own save writes the record again.
	if over && c.gen == gen {
		// If the deletion failed, a restart finds that the record's pods are gone.
		m.forget(c)
	}
	if err == nil {
		c.saved = max(c.saved, gen)
		m.kubeletOutdated.Set()
	}
	return err
}

// forget removes a claim from memory. Manager.mu is held.
func (m *Manager) forget(c *claim) {
	delete(m.claims, c.UID)
	if m.byName[c.String()] == c {
		delete(m.byName, c.String())
		for _, other := range m.claims { // a second claim with the same name
			if other.String() == c.String() {
				m.byName[c.String()] = other
			}
		}
	}
}
