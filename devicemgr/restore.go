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

// The start on a node whose pods already have devices. In case of doubt, a device that may be in
// use is not given to other pods.

// errRestored is the error of a second Restore.
var errRestored = errors.New("device records were restored already")

// damagedPod is a running pod whose devices are not known, because its record was damaged: any device
// may be one of them. Manager.mu guards it. It is removed with the pod, or when all affected
// containers have ended.
type damagedPod struct {
	pod string // name of the pod, for people
	// since is the time of the agent's start. From then on, pods that request a hidden resource
	// wait for the grace period.
	since     time.Time
	resources map[string]bool // resources of which it may have devices; nil means any
	unknown   map[string]bool // running containers with unknown devices; nil means any
}

// hides reports whether the pod may have unknown devices of a resource.
func (b *damagedPod) hides(resource string) bool { return b.resources == nil || b.resources[resource] }

// names is the value stored under namesKey: the known resources. Without it, after a restart, a
// pod could be admitted without the devices of a plugin that has not registered yet.
type names struct {
	Version   int      `json:"version"`
	Resources []string `json:"resources"` // sorted
}

// Restore reads the stored records after a restart. Call it before Run. running has the names of
// the running containers by pod. These containers keep their devices, whatever their plugins
// list. If running is nil, any container may be running.
//
// An error means that nothing could be read. Call Restore again, since until then devices of pods
// look free. After a success, every further call returns an error.
//
// A damaged record is ignored if the pod is not running. If the pod is running, its devices are
// not known. No device of a resource that the pod requests is then given to others until the pod
// has ended. Before the pod is admitted, its requests are not known, and no device of any
// resource is given to others. Restore blocks on the store.
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
	// From here on, a record that cannot be read counts as damaged.
	m.restored = true
	// Kept, since the containers of a pod with a damaged record are compared with it later.
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
			// Read without Manager.mu, so that other calls can read the capacity meanwhile.
			if r := m.read(types.UID(uid), running); r != nil {
				records = append(records, r)
			}
		case key == namesKey:
			if value, err := m.cfg.Store.Read(key); err != nil {
				m.cfg.Log.Error("failed to read names of resources", zap.Error(err))
				// If the names are lost, no running pod loses its devices, since records have the
				// names of their resources.
			} else if err := strict(value, &known); err != nil || known.Version != recordVersion {
				m.cfg.Log.Error("failed to read names of resources", zap.Error(err), zap.Int("version", known.Version))
				known = names{}
			}
		}
	}
	// Called after the agent's own records are read, since newer ones of a kubelet replace them.
	records = m.fromKubelet(records, &known, running)
	// Running pods come first. If two records have the same device, the other one is the record
	// of an ended pod that could not be deleted.
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
	// Adopted at once under the lock, so that no device looks free in between.
	const why = "its plugin has not registered since the restart of the agent"
	for _, n := range known.Resources {
		// Names that are invalid today, or too many, are dropped silently. They are stored again
		// when their plugin registers.
		if CheckResource(n) == nil && len(m.resources) < maxResources {
			m.resource(n, why)
		}
	}
	for _, r := range records {
		m.adopt(r, why)
	}
	return nil
}

// read returns the record of one pod from the store, or nil if there is none. A record that
// cannot be read counts as damaged, whether the reason is its content or the disk. The caller
// must not hold Manager.mu.
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
	// For administrators: this node may be withholding devices.
	m.met.damaged.Inc()
	m.cfg.Log.Error("found damaged device record of pod", zap.String("uid", string(uid)), zap.Bool("running", live), zap.Error(err))
	// If nothing of the pod is running, it gets devices by admission if it starts again.
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
		m.damaged[r.UID] = &damagedPod{pod: string(r.UID), since: time.Now(), unknown: m.running[r.UID]}
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
			// If two running pods have the same device, both keep their records: a device cannot
			// be taken from a running process.
			if _, taken := res.taken[d.ID]; !taken {
				res.taken[d.ID] = r.UID
			}
		}
	}
	m.pods[r.UID] = r
}

// write stores a record under its pod's key. It blocks on the store. The caller holds the pod's
// turn, or is Restore.
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
	m.storing <- struct{}{}
	defer func() { <-m.storing }()
	// The names are read after this, so that an earlier call with fewer names cannot write after this
	// one.
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

// Retain releases every pod for which known returns false, and corrects records that could not be
// written or deleted. Call it from time to time, once all pods of the node are known. It checks
// only pods that had devices before the call, so it does not affect pods that are admitted
// meanwhile. It blocks on the store while it corrects records.
func (m *Manager) Retain(known func(types.UID) bool) {
	m.mu.Lock()
	have := slices.Collect(maps.Keys(m.pods))
	m.mu.Unlock()
	slices.Sort(have)
	// known is called without the lock, since it may take its own locks.
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
			return // the disk still fails
		}
	}
}

// drop removes a pod's record from memory and notifies the subscribers. Manager.mu is held. The
// caller removes the record from the store.
func (m *Manager) drop(uid types.UID) {
	r := m.pods[uid]
	delete(m.pods, uid)
	delete(m.running, uid)
	delete(m.lostCalls, uid)
	var freed []string
	if m.damaged[uid] != nil {
		delete(m.damaged, uid)
		// Such a pod may have had devices of any of them.
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

// free frees devices. Manager.mu is held. Devices that another pod has by now stay allocated.
func (m *Manager) free(h Holding, uid types.UID) {
	res := m.resources[h.Resource]
	for _, d := range h.Devices {
		if res.taken[d.ID] == uid {
			delete(res.taken, d.ID)
		}
	}
}
