package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/slots"
)

// The manager's records and their locks. Manager.mu guards all records. The gate of a pod guards
// the pod's files that are not in a volume. A gate is always taken before mu, never while mu is
// held. Plugins are called without mu and without a gate, so that a volume that hangs blocks
// nothing else.

// ErrStopped means that the manager's Run has ended.
var ErrStopped = errors.New("the volume manager has stopped")

// Manager mounts the volumes of pods. It is safe for concurrent use. Methods with a context wait
// until Run has read the directories that an earlier process left.
type Manager struct {
	cfg  Config
	met  *metrics
	root string // Config.Root without symbolic links; set when Run begins

	found chan struct{} // closed when Run has read the directories of pods

	// mu guards the fields below it and everything in pods and devices. It is never
	// held across a call that may block.
	mu   sync.Mutex
	pods map[types.UID]*pod
	// devices has the records of devices, by plugin and name; see device.key.
	devices map[string]*device
	// refs has the volumes to wake when an object changes, so that Changed need not search all
	// pods.
	refs map[Ref]map[*volume]struct{}
	// lost counts, by plugin, the volumes whose device could not be determined. Such a volume may
	// use any device of the plugin. While the count is above 0, devices that an earlier process
	// left are not unmounted.
	lost     map[string]int
	slots    *slots.Queue[waker]
	allKnown bool            // Sweep was called: all pods are known
	ctx      context.Context // set by Run; nil before
	stopped  bool
	wg       sync.WaitGroup // the running operations
}

// New validates cfg and returns a Manager; call Run to start it. New does not access the disk.
// The error names every invalid field.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("volumemgr: %w", err)
	}
	m := &Manager{
		cfg: cfg, root: cfg.Root,
		found:   make(chan struct{}),
		pods:    map[types.UID]*pod{},
		devices: map[string]*device{},
		refs:    map[Ref]map[*volume]struct{}{},
		lost:    map[string]int{},
	}
	// Hung operations must not occupy all slots of the node, so each releases its slot after one
	// second.
	m.slots = slots.New(slots.Config[waker]{Slots: parallel, Limit: slowAfter, Lock: &m.mu, Turn: waker.turn})
	var err error
	if m.met, err = newMetrics(cfg.Metrics, m); err != nil {
		return nil, fmt.Errorf("volumemgr: %w", err)
	}
	return m, nil
}

// Run reads the volumes that an earlier process left, and then works until ctx ends. It then
// cancels the running operations, and returns nil when they have returned. It unmounts nothing.
// It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// Paths in the mount table have no symbolic links.
	if real, err := filepath.EvalSymlinks(m.cfg.Root); err == nil {
		m.root = real
	}
	// While m.ctx is nil, wake starts nothing: all directories must be read first.
	m.reconstruct(ctx)
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	// Mount, Unmount, Remove and Sweep wait for this; see begun.
	close(m.found)

	<-ctx.Done()
	m.mu.Lock()
	// Callers are released before the operations end, since an operation may ignore its context.
	m.stopped = true
	for _, p := range m.pods {
		for _, v := range p.volumes {
			stopTimer(v.timer)
			v.settle(ErrStopped)
		}
	}
	for _, d := range m.devices {
		stopTimer(d.timer)
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// begun waits until Run has read the directories. Earlier, a Mount would set up again volumes
// that running containers use.
func (m *Manager) begun(ctx context.Context) error {
	select {
	case <-m.found:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the volume manager has not started: %w", ctx.Err())
	}
}

// enter waits for the gate of a pod, takes it, and returns the pod's record. The caller releases
// the gate with leave. In between, no other call changes the pod's directories, and the record
// stays in m.pods. If ctx ends first, enter returns an error.
func (m *Manager) enter(ctx context.Context, uid types.UID) (*pod, error) {
	// A UID is part of paths: one with a slash or ".." would lead out of the root.
	if !plain(string(uid)) {
		return nil, fmt.Errorf("pod UID %q cannot be the name of a directory", uid)
	}
	m.mu.Lock()
	p := m.pod(uid)
	// Counted before the gate is taken, so that its present holder does not drop the record.
	p.uses++
	m.mu.Unlock()
	select {
	case <-p.gate:
		return p, nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		p.uses--
		m.drop(p)
		return nil, ctx.Err()
	}
}

// leave releases the gate, and drops the pod's record if it is empty. m.mu must not be held.
func (m *Manager) leave(p *pod) {
	p.gate <- struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.uses--
	m.drop(p)
}

// pod returns the pod's record, and creates it if there is none. The caller holds m.mu.
func (m *Manager) pod(uid types.UID) *pod {
	p := m.pods[uid]
	if p == nil {
		p = &pod{uid: uid, volumes: map[volumeKey]*volume{}, gate: make(chan struct{}, 1)}
		p.gate <- struct{}{}
		m.pods[uid] = p
	}
	return p
}

// drop removes the record of a pod that has no volumes, is not wanted and is not in
// use. The caller holds m.mu.
func (m *Manager) drop(p *pod) {
	if p.uses == 0 && len(p.volumes) == 0 && !p.wanted {
		delete(m.pods, p.uid)
	}
}

// plugin returns a plugin by name. It returns nil if there is none: a pod's directory may have
// volumes of a plugin that this agent does not have.
func (m *Manager) plugin(name string) Plugin {
	for _, p := range m.cfg.Plugins {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// wake executes the action that decide returns for a volume. It must be called, with m.mu held,
// whenever something in the volume's view has changed; otherwise the volume may wait forever. An
// additional call is harmless. wake does not block.
func (m *Manager) wake(v *volume) {
	// A timer or a device may still refer to a record that was removed and replaced by a new one.
	if m.stopped || m.ctx == nil || v.pod.volumes[v.key] != v {
		return
	}
	now := time.Now()
	// Expired content is stale from now on, even if the next set-up has to wait for a back-off.
	if !v.expires.IsZero() && !v.expires.After(now) {
		v.expires, v.stale = time.Time{}, true
	}
	// Each decision sets its own timer; an older one would only cause an unnecessary call.
	stopTimer(v.timer)
	v.timer = nil
	act := decide(v.view(now))
	switch act.do {
	case setUp:
		m.start(v, opSetUp)
	case tearDown:
		m.start(v, opTearDown)
	// The volume needs no timer: the device wakes it.
	case needDevice:
		m.wakeDevice(v.device)
	case cancel:
		v.run.canceled = true
		v.run.cancel()
	case wait:
		m.wakeAfter(v, act.wait)
	case forget:
		m.forget(v)
	// A volume without a running operation has a timer only if its content expires.
	case nothing:
		if v.desired && v.has == present && !v.expires.IsZero() {
			m.wakeAfter(v, v.expires.Sub(now))
		}
	}
}

// wakeAfter calls wake for v after d.
func (m *Manager) wakeAfter(v *volume, d time.Duration) {
	v.timer = time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.wake(v)
	})
}

// wakeDevice executes the action that decideDevice returns for a device. It is
// called, with m.mu held, whenever a volume of the device or the knowledge about
// pods has changed.
func (m *Manager) wakeDevice(d *device) {
	if m.stopped || m.ctx == nil || m.devices[d.key()] != d {
		return
	}
	stopTimer(d.timer)
	d.timer = nil
	act := decideDevice(d.view(time.Now(), m.allKnown && m.lost[d.plugin.Name()] == 0))
	switch {
	case act.stop:
		d.run.canceled = true
		d.run.cancel()
	case act.do != opNone:
		m.startDevice(d, act.do)
	case act.wait > 0:
		d.timer = time.AfterFunc(act.wait, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.wakeDevice(d)
		})
	case act.gone && len(d.users) == 0:
		delete(m.devices, d.key())
	}
}

// wakeShared wakes everything that an operation may have blocked: first the volumes of the
// device, then the device, which is unmounted if no volume needs it. If d is nil, it does
// nothing.
func (m *Manager) wakeShared(d *device) {
	if d == nil {
		return
	}
	for u := range d.users {
		m.wake(u)
	}
	m.wakeDevice(d)
}

// forget removes the record of a volume that is neither wanted nor mounted. A later Mount starts
// with a new record, without the failures of this one.
func (m *Manager) forget(v *volume) {
	delete(v.pod.volumes, v.key)
	stopTimer(v.timer)
	m.setRefs(v, nil)
	m.setDevice(v, nil)
	v.settle(nil)
	m.drop(v.pod)
}

// setDevice makes d the device of v. If d is nil, v has no device. It wakes the former device,
// which may have lost its last user. The caller holds m.mu.
func (m *Manager) setDevice(v *volume, d *device) {
	if v.lost {
		v.lost = false
		m.lost[v.key.plugin]--
	}
	if old := v.device; old != d && old != nil {
		delete(old.users, v)
		v.device = nil
		m.wakeShared(old)
	}
	if v.device = d; d != nil {
		d.users[v] = struct{}{}
	}
}

// deviceOf returns the record of a device, and creates it if there is none. The caller holds
// m.mu. All volumes of a device share its record, so that their operations exclude each other.
func (m *Manager) deviceOf(p DevicePlugin, id Device) *device {
	d := &device{m: m, plugin: p, id: id, users: map[*volume]struct{}{}}
	if known := m.devices[d.key()]; known != nil {
		return known
	}
	m.devices[d.key()] = d
	return d
}

// setRefs stores the objects that v depends on, in place of the former ones. The caller holds
// m.mu.
func (m *Manager) setRefs(v *volume, refs []Ref) {
	for _, r := range v.refs {
		delete(m.refs[r], v)
		// Without this, the map would keep an empty set for every ConfigMap that a pod of this
		// node ever used.
		if len(m.refs[r]) == 0 {
			delete(m.refs, r)
		}
	}
	v.refs = refs
	for _, r := range refs {
		if m.refs[r] == nil {
			m.refs[r] = map[*volume]struct{}{}
		}
		m.refs[r][v] = struct{}{}
	}
}

func (v *volume) fields() []zap.Field {
	return []zap.Field{zap.String("uid", string(v.pod.uid)), zap.String("plugin", v.key.plugin), zap.String("volume", v.key.name)}
}

// Operations returns how many volumes are being set up or torn down, how many may be at a time, and
// how many wait for their operation.
func (m *Manager) Operations() (running, limit, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slots.Load()
}
