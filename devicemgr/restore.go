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

// The start of a process on a node whose pods have devices. In doubt, a device that
// may be in use is not given to other pods.

// errRestored is returned by a second call of Restore.
var errRestored = errors.New("devices of before the restart were read already")

// blind is a running pod with devices that are not known, because its record was
// damaged: they cannot be told from free devices. Manager.mu guards it. It is
// removed with the pod, or when all affected containers have ended.
type blind struct {
	pod string // for people
	// since is the time of the agent's start: pods that request a hidden resource
	// wait for Config.Grace from then on.
	since     time.Time
	resources map[string]bool // nil: any
	unknown   map[string]bool // containers that run; nil: any
}

// hides reports whether the pod may have unknown devices of a resource.
func (b *blind) hides(resource string) bool { return b.resources == nil || b.resources[resource] }

// names is the value stored under namesKey: the known resources. Without it, after
// a restart, a pod would be admitted without the devices of a plugin that has not
// registered yet.
type names struct {
	Version   int      `json:"version"`
	Resources []string `json:"resources"` // sorted
}

// Restore reads the stored records after a restart. Call it before Run. running
// names the running containers by pod: they keep their devices, whatever their
// plugins list. Nil means that they are not known, and that every container may
// run. An error means that nothing could be read: call Restore again, since devices
// of pods look free until then. After a success every other call returns an error.
//
// A damaged record is ignored if the pod does not run. If it runs, its devices are
// not known, and no device of its resources (until the pod is admitted: of any
// resource) is given to others until the pod has ended. It blocks on the store.
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
			// Reads happen without Manager.mu: other calls may read the capacity
			// meanwhile.
			if r := m.read(types.UID(uid), running); r != nil {
				records = append(records, r)
			}
		case key == namesKey:
			if value, err := m.cfg.Store.Read(key); err != nil {
				m.cfg.Log.Error("failed to read names of resources", zap.Error(err))
				// Lost names cost no running pod its devices, since records name
				// resources too.
			} else if err := strict(value, &known); err != nil || known.Version != recordVersion {
				m.cfg.Log.Error("failed to read names of resources", zap.Error(err), zap.Int("version", known.Version))
				known = names{}
			}
		}
	}
	// After the agent's own records, which newer ones of a kubelet replace.
	records = m.fromKubelet(records, &known, running)
	// Running pods are first: of two records with the same device, the other one
	// belongs to a pod that ended and whose record could not be deleted.
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
	// All at once under the lock, so that no device looks free in between.
	const why = "its plugin has not registered since the restart of the agent"
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
	m.cfg.Log.Error("found damaged device record of pod", zap.String("uid", string(uid)), zap.Bool("running", live), zap.Error(err))
	// Nothing runs, nothing is in use: the pod gets devices by admission if it
	// starts again.
	if !live {
		if err := m.cfg.Store.Delete(podPrefix + string(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.cfg.Log.Warn("failed to remove damaged record", zap.String("uid", string(uid)), zap.Error(err))
		}
		return nil
	}
	r = &record{Version: recordVersion, UID: uid, Lost: true, live: true}
	if err := m.write(r); err != nil { // the next restart has to know it too
		m.cfg.Log.Error("failed to store the mark of a damaged record", zap.String("uid", string(uid)), zap.Error(err))
	}
	return r
}

// adopt adds a stored record to the state. Manager.mu is held. If two records have the same
// device, the first one keeps it; Restore passes running pods first.
func (m *Manager) adopt(r *record, why string) {
	if r.Lost {
		m.blind[r.UID] = &blind{pod: string(r.UID), since: time.Now(), unknown: m.running[r.UID]}
	}
	for _, h := range r.Held {
		res := m.resource(h.Resource, why)
		for _, d := range h.Devices {
			if owner, taken := res.taken[d.ID]; taken && owner != r.UID {
				m.cfg.Log.Error("found a device in the records of two pods", zap.String("resource", h.Resource), zap.String("device", d.ID),
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

// write stores a record under its pod's key. It blocks on the store; the caller
// holds the pod's turn, or is Restore.
func (m *Manager) write(r *record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return m.cfg.Store.Write(podPrefix+string(r.UID), value)
}

// saveNames stores the names of all resources if they changed. It is called at
// every registration.
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

// Retain releases every pod for which known returns false, and corrects records
// that could not be written or deleted before. Call it from time to time, once all
// pods of the node are known. A pod that is admitted meanwhile is not affected:
// only pods that had devices before are checked. It blocks on the store while it
// corrects records.
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

// drop removes a pod's record from memory and informs the subscribers. Manager.mu
// is held. The caller removes it from the store.
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

// free frees devices. Manager.mu is held. Devices that another pod has by now are
// not changed.
func (m *Manager) free(h Holding, uid types.UID) {
	res := m.resources[h.Resource]
	for _, d := range h.Devices {
		if res.taken[d.ID] == uid {
			delete(res.taken, d.ID)
		}
	}
}
