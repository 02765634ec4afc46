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

// The start of a process on a node whose pods have devices. The rule for every
// doubt: a device that may be in use is not given to others.

// errRestored is for a Restore that has no use.
var errRestored = errors.New("devices of before the restart were read already")

// blind is a pod that runs and has devices that nobody knows: those of its
// resources cannot be told from free ones. Manager.mu guards it. It ends with the
// pod, or when all of its containers in question have ended.
type blind struct {
	pod string // for people
	// since is when the agent started: pods that ask for a hidden resource wait for
	// Config.Grace from then on.
	since     time.Time
	resources map[string]bool // nil: any
	unknown   map[string]bool // containers that run; nil: any
}

// hides reports whether free devices of a resource cannot be told from those of the
// pod.
func (b *blind) hides(resource string) bool { return b.resources == nil || b.resources[resource] }

// names is what is stored under namesKey. Without them a pod of before would be
// admitted with no devices: a resource that nobody has offered is not the
// manager's.
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
// A record that is damaged counts for nothing if the pod does not run. If it does,
// nobody can know which devices it has, and none of that resource (of any, until
// the pod is admitted) is given to others until the pod has ended. It blocks for
// the store.
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
	// From here on a single record that cannot be read is a damaged one.
	m.restored = true
	// Kept for later: a blind pod's containers are compared with it.
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
			// Reads happen without Manager.mu: others may ask for capacity
			// meanwhile.
			if r := m.read(types.UID(uid), running); r != nil {
				records = append(records, r)
			}
		case key == namesKey:
			if value, err := m.cfg.Store.Read(key); err != nil {
				m.cfg.Log.Error("names of resources are not known", zap.Error(err))
				// Lost names cost no running pod its devices, since records name
				// resources too.
			} else if err := strict(value, &known); err != nil || known.Version != recordVersion {
				m.cfg.Log.Error("names of resources are not known", zap.Error(err), zap.Int("version", known.Version))
				known = names{}
			}
		}
	}
	// After the agent's own records, which newer ones of a kubelet replace.
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
	// All at once under the lock: nobody sees resources whose devices look free.
	const why = "its plugin has not come back after the restart of the agent"
	for _, n := range known.Resources {
		// Names of another version's rules, or too many, are dropped silently: they
		// are written anew with the next plugin.
		if checkResource(n) == nil && len(m.resources) < maxResources {
			m.resource(n, why)
		}
	}
	for _, r := range records {
		m.adopt(r, why)
	}
	return nil
}

// read reads the record of one pod. Nil means that it has none. Called without
// Manager.mu. A record that cannot be read counts as damaged, be it for its
// contents or for the disk.
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
	// For an administrator: this node may hold devices back.
	m.met.damaged.Inc()
	m.cfg.Log.Error("which devices a pod has is not known", zap.String("uid", string(uid)), zap.Bool("running", live), zap.Error(err))
	// Nothing runs, nothing is in use: the pod gets devices by admission if it
	// starts again.
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

// adopt takes a record up. Manager.mu is held. Of records that share a device, the
// first keeps it; Restore has put the running pods first.
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
			// Two running pods with one device both keep their records: neither can
			// be taken from a process that runs.
			if _, taken := res.taken[d.ID]; !taken {
				res.taken[d.ID] = r.UID
			}
		}
	}
	m.pods[r.UID] = r
}

// write stores a record under its pod's key. It blocks for the store; callers hold
// the pod's turn, or are alone as Restore is.
func (m *Manager) write(r *record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return m.cfg.Store.Write(podPrefix+string(r.UID), value)
}

// saveNames stores the names of all resources. It is called at every registration,
// most of which change nothing: those do not write.
func (m *Manager) saveNames() error {
	m.storing.Lock()
	defer m.storing.Unlock()
	// The names are read with storing held: a later call cannot be overtaken by an
	// earlier one with fewer names.
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

// Retain releases every pod that is not known, and corrects records that could not
// be written or deleted before. A pod that comes while it is under way is not
// harmed: those it asks about had their devices before. It is called from time to
// time with all pods of the node, once they are known. It blocks for the store
// while records have to be corrected.
func (m *Manager) Retain(known func(types.UID) bool) {
	m.mu.Lock()
	have := slices.Collect(maps.Keys(m.pods))
	m.mu.Unlock()
	slices.Sort(have)
	// known is called without the lock, as it may take locks of its own.
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

// drop forgets a pod. Manager.mu is held. Whoever waits for its devices is told.
// The store is the caller's matter.
func (m *Manager) drop(uid types.UID) {
	r := m.pods[uid]
	delete(m.pods, uid)
	delete(m.running, uid)
	delete(m.strikes, uid)
	var freed []string
	if m.blind[uid] != nil {
		delete(m.blind, uid)
		// A blind pod may have hidden any of them.
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

// free gives devices back. Manager.mu is held. Those that another pod has by now
// stay its own.
func (m *Manager) free(h Holding, uid types.UID) {
	res := m.resources[h.Resource]
	for _, d := range h.Devices {
		if res.taken[d.ID] == uid {
			delete(res.taken, d.ID)
		}
	}
}
