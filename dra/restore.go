package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// errRestored is for a Restore that has no use.
var errRestored = errors.New("claims of before the restart were read already")

// Restore reads which claims pods used before the restart of the agent. It is
// called once, before Run. running names the containers that run now, by pod;
// nil means that this is not known, and that everything may run. What it cannot
// read it logs and counts; the error reports that nothing could be read.
func (m *Manager) Restore(running map[types.UID][]string) error {
	m.mu.Lock()
	if m.restored {
		m.mu.Unlock()
		return errRestored
	}
	m.restored = true
	for uid, names := range running {
		if len(names) > 0 {
			m.alive[uid] = true
		}
	}
	m.mu.Unlock()
	keys, err := m.cfg.Store.Keys()
	if err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	theirs := m.fromKubelet()
	for _, r := range theirs {
		m.inherit(r, running == nil)
	}
	for _, key := range keys {
		uid, ours := strings.CutPrefix(key, claimPrefix)
		if !ours || slices.ContainsFunc(theirs, func(r *record) bool { return r.UID == types.UID(uid) }) {
			continue
		}
		r, err := m.read(types.UID(uid))
		if err != nil {
			m.met.damaged.Inc()
			m.cfg.Log.Error("which pods use a claim is not known; it is found out when they are synced", zap.String("uid", uid), zap.Error(err))
			continue
		}
		m.adopt(r, running == nil)
	}
	return nil
}

// read reads one record. One that is damaged is removed.
func (m *Manager) read(uid types.UID) (*record, error) {
	key := claimPrefix + string(uid)
	value, err := m.cfg.Store.Read(key)
	var r *record
	if err == nil {
		if r, err = parseRecord(uid, value); err == nil {
			return r, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err // it may be whole
	}
	if gone := m.cfg.Store.Delete(key); gone != nil {
		err = errors.Join(err, gone)
	}
	return nil, err
}

// adopt takes a record up. blind reports that everything may run.
func (m *Manager) adopt(r *record, blind bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &claim{ClaimRef: ClaimRef{r.Namespace, r.Name, r.UID}, pods: map[types.UID]*podRef{}, parts: map[string]*part{}}
	if other := m.byName[c.String()]; other != nil {
		// One was deleted by force, and made again. Both have to be undone.
		m.cfg.Log.Warn("two claims have the same name", zap.String("claim", c.String()), zap.String("uid", string(c.UID)), zap.String("other", string(other.UID)))
	} else {
		m.byName[c.String()] = c
	}
	m.claims[c.UID] = c
	used := blind
	for _, p := range r.Pods {
		used = used || m.alive[p.UID]
		p.given = true
		m.refer(c, p)
	}
	same := r.Boot == m.cfg.Boot && (m.cfg.Boot != "" || used)
	for _, d := range r.Drivers {
		p := &part{called: true}
		if d.Prepared && same {
			p.prepared, p.devices = true, d.Devices
		}
		c.parts[d.Name] = p
	}
	c.saved = c.gen
}

// save stores what claims are now: one that no pod uses any more is forgotten,
// and its record removed.
func (m *Manager) save(claims ...*claim) error {
	var errs []error
	for _, c := range claims {
		if err := m.saveOne(c); err != nil {
			errs = append(errs, &ClaimError{c.String(), fmt.Errorf("store its record: %w", err)})
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) saveOne(c *claim) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	m.mu.Lock()
	if c.gen == c.saved {
		m.mu.Unlock()
		return nil
	}
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
	if over && c.gen == gen {
		// If the record stays, its pods are found to be gone after a restart.
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
		for _, other := range m.claims { // the one that was there twice
			if other.String() == c.String() {
				m.byName[c.String()] = other
			}
		}
	}
}
