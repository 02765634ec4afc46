package devicemgr

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// errRestored is for a Restore that has no use.
var errRestored = errors.New("devices of before the restart were read already")

// blind is a pod that runs and has devices that nobody knows: those of its
// resources cannot be told from free ones.
type blind struct {
	pod       string // for people
	since     time.Time
	resources map[string]bool // nil: any
	unknown   map[string]bool // containers that run; nil: any
}

func (b *blind) hides(resource string) bool { return b.resources == nil || b.resources[resource] }

// names is what is stored under namesKey.
type names struct {
	Version   int      `json:"version"`
	Resources []string `json:"resources"` // sorted
}

// Restore reads what pods had before the restart of the agent. It is called
// before Run. running names the containers that run now, by pod: what
// they have they keep, whatever their plugins say. Nil means that this is not
// known, and that everything may run. The error means that nothing could be read:
// Restore is to be called again then, since devices that pods have look free. Once it
// has succeeded, every other call is an error.
//
// A record that is damaged counts for nothing if the pod does not run. If it
// does, nobody can know which devices it has, and none of that resource (of any,
// until the pod is admitted) is given to others until the pod has ended.
func (m *Manager) Restore(running map[types.UID][]string) error {
	m.restoring.Lock()
	defer m.restoring.Unlock()
	if m.restored {
		return errRestored
	}
	keys, err := m.cfg.Store.Keys()
	if err != nil {
		return fmt.Errorf("devicemgr: %w", err)
	}
	m.restored = true
	m.mu.Lock()
	for uid, list := range running {
		m.running[uid] = map[string]bool{}
		for _, c := range list {
			m.running[uid][c] = true
		}
	}
	m.mu.Unlock()

	var known names
	var records []*record
	for _, key := range keys {
		uid, isPod := strings.CutPrefix(key, podPrefix)
		switch {
		case isPod:
			if r := m.read(types.UID(uid), running); r != nil {
				records = append(records, r)
			}
		case key == namesKey:
			if value, err := m.cfg.Store.Read(key); err != nil {
				m.cfg.Log.Error("names of resources are not known", zap.Error(err))
			} else if err := strict(value, &known); err != nil || known.Version != recordVersion {
				m.cfg.Log.Error("names of resources are not known", zap.Error(err), zap.Int("version", known.Version))
				known = names{}
			}
		}
	}
	records = m.fromKubelet(records, &known, running)
	// What runs comes first: of two records with the same device, the other
	// one is of a pod that ended, and could not be deleted.
	slices.SortStableFunc(records, func(a, b *record) int {
		switch {
		case a.live == b.live:
			return 0
		case a.live:
			return -1
		default:
			return 1
		}
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	const why = "its plugin has not come back after the restart of the agent"
	for _, n := range known.Resources {
		if checkResource(n) == nil && len(m.resources) < maxResources {
			m.resource(n, why)
		}
	}
	for _, r := range records {
		m.adopt(r, why)
	}
	return nil
}

// read reads the record of one pod. Nil means that it has none.
func (m *Manager) read(uid types.UID, running map[types.UID][]string) *record {
	live := running == nil || len(running[uid]) > 0
	value, err := m.cfg.Store.Read(podPrefix + string(uid))
	var r *record
	if err == nil {
		r, err = parseRecord(uid, value)
	}
	if err == nil {
		r.live = live
		return r
	}
	m.met.damaged.Inc()
	m.cfg.Log.Error("which devices a pod has is not known", zap.String("uid", string(uid)), zap.Bool("running", live), zap.Error(err))
	if !live {
		if err := m.cfg.Store.Delete(podPrefix + string(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("a damaged record stays", zap.String("uid", string(uid)), zap.Error(err))
		}
		return nil
	}
	r = &record{Version: recordVersion, UID: uid, Lost: true, live: true}
	if err := m.write(r); err != nil { // the next restart has to know it too
		m.cfg.Log.Error("that a record was damaged is not kept", zap.String("uid", string(uid)), zap.Error(err))
	}
	return r
}

// adopt takes a record up. Manager.mu is held.
func (m *Manager) adopt(r *record, why string) {
	if r.Lost {
		m.blind[r.UID] = &blind{pod: string(r.UID), since: time.Now(), unknown: m.running[r.UID]}
	}
	for _, h := range r.Held {
		res := m.resource(h.Resource, why)
		for _, d := range h.Devices {
			if owner, taken := res.taken[d.ID]; taken && owner != r.UID {
				m.cfg.Log.Error("two pods have the same device", zap.String("resource", h.Resource), zap.String("device", d.ID),
					zap.String("uid", string(owner)), zap.String("other", string(r.UID)))
				if !r.live {
					continue
				}
			}
			if _, taken := res.taken[d.ID]; !taken {
				res.taken[d.ID] = r.UID
			}
		}
	}
	m.pods[r.UID] = r
}

func (m *Manager) write(r *record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return m.cfg.Store.Write(podPrefix+string(r.UID), value)
}

// saveNames stores the names of all resources.
func (m *Manager) saveNames() error {
	m.storing.Lock()
	defer m.storing.Unlock()
	m.mu.Lock()
	n := names{Version: recordVersion}
	for name := range m.resources {
		n.Resources = append(n.Resources, name)
	}
	m.mu.Unlock()
	slices.Sort(n.Resources)
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if had, err := m.cfg.Store.Read(namesKey); err == nil && string(had) == string(value) {
		return nil
	}
	return m.cfg.Store.Write(namesKey, value)
}

// Retain releases every pod that is not known, and corrects records that could not be
// written or deleted before. A pod that comes while it is
// under way is not harmed: those it asks about had their devices before.
func (m *Manager) Retain(known func(types.UID) bool) {
	m.mu.Lock()
	have := slices.Collect(maps.Keys(m.pods))
	m.mu.Unlock()
	slices.Sort(have)
	for _, uid := range have {
		if !known(uid) {
			m.Release(uid)
		}
	}
	m.mu.Lock()
	left := slices.Collect(maps.Keys(m.inexact))
	m.mu.Unlock()
	for _, uid := range left {
		if !m.correct(uid) {
			return // the disk does not work yet
		}
	}
}

// drop forgets a pod. Manager.mu is held.
func (m *Manager) drop(uid types.UID) {
	r := m.pods[uid]
	delete(m.pods, uid)
	delete(m.running, uid)
	delete(m.strikes, uid)
	var freed []string
	if m.blind[uid] != nil {
		delete(m.blind, uid)
		for name := range m.resources {
			freed = append(freed, name)
		}
	}
	if r != nil {
		for _, h := range r.Held {
			m.free(h, uid)
			freed = append(freed, h.Resource)
		}
	}
	if len(freed) > 0 {
		m.subs.Publish(Change{Resources: freed})
	}
}

// free gives devices back. Manager.mu is held.
func (m *Manager) free(h Holding, uid types.UID) {
	res := m.resources[h.Resource]
	for _, d := range h.Devices {
		if res.taken[d.ID] == uid {
			delete(res.taken, d.ID)
		}
	}
}
