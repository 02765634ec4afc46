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

// ErrStopped means that the manager's Run has ended.
var ErrStopped = errors.New("the volume manager has stopped")

// Manager mounts the volumes of pods. Its methods may be called from any
// goroutine; those that take a context wait until Run has looked at what an
// earlier process left.
type Manager struct {
	cfg  Config
	met  *metrics
	root string // Config.Root without symbolic links, once Run has begun

	found chan struct{} // closed when Run knows what is there

	mu       sync.Mutex
	pods     map[types.UID]*pod
	devices  map[string]*device
	refs     map[Ref]map[*volume]struct{}
	lost     map[string]int // volumes of a plugin whose device is not known
	slots    *slots.Queue[waker]
	allKnown bool            // Sweep was called: all pods that matter are known
	ctx      context.Context // Run's; nil before
	stopped  bool
	wg       sync.WaitGroup // operations
}

// New checks cfg and returns a Manager at rest.
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
	m.slots = slots.New(slots.Config[waker]{Slots: cfg.Parallel, Limit: slowAfter, Lock: &m.mu, Turn: waker.turn})
	var err error
	if m.met, err = newMetrics(cfg.Metrics, m); err != nil {
		return nil, fmt.Errorf("volumemgr: %w", err)
	}
	return m, nil
}

// Run finds out what an earlier process left, then works until ctx ends,
// cancels the operations in flight and returns nil when they have returned.
// Nothing is unmounted by it. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// The mount table knows no symbolic links.
	if real, err := filepath.EvalSymlinks(m.cfg.Root); err == nil {
		m.root = real
	}
	m.reconstruct(ctx)
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	close(m.found)

	<-ctx.Done()
	m.mu.Lock()
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

// begun waits until Run knows what is there.
func (m *Manager) begun(ctx context.Context) error {
	select {
	case <-m.found:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the volume manager has not started: %w", ctx.Err())
	}
}

// enter returns the pod's record and holds its gate, until leave. The record
// stays in m.pods that long.
func (m *Manager) enter(ctx context.Context, uid types.UID) (*pod, error) {
	if !plain(string(uid)) {
		return nil, fmt.Errorf("pod UID %q cannot be the name of a directory", uid)
	}
	m.mu.Lock()
	p := m.pod(uid)
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

func (m *Manager) leave(p *pod) {
	p.gate <- struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.uses--
	m.drop(p)
}

// pod returns the pod's record, a new one if there is none.
func (m *Manager) pod(uid types.UID) *pod {
	p := m.pods[uid]
	if p == nil {
		p = &pod{uid: uid, volumes: map[volumeKey]*volume{}, gate: make(chan struct{}, 1)}
		p.gate <- struct{}{}
		m.pods[uid] = p
	}
	return p
}

// drop forgets a pod that there is nothing to know of.
func (m *Manager) drop(p *pod) {
	if p.uses == 0 && len(p.volumes) == 0 && !p.wanted {
		delete(m.pods, p.uid)
	}
}

// plugin finds a plugin by its name.
func (m *Manager) plugin(name string) Plugin {
	for _, p := range m.cfg.Plugins {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// wake does for a volume what decide says. It is called, with m.mu held,
// whenever something has changed that decide looks at.
func (m *Manager) wake(v *volume) {
	if m.stopped || m.ctx == nil || v.pod.volumes[v.key] != v {
		return
	}
	now := time.Now()
	if !v.expires.IsZero() && !v.expires.After(now) {
		v.expires, v.stale = time.Time{}, true
	}
	stopTimer(v.timer)
	v.timer = nil
	act := decide(v.view(now))
	switch act.do {
	case setUp:
		m.start(v, opSetUp)
	case tearDown:
		m.start(v, opTearDown)
	case needDevice:
		m.wakeDevice(v.device)
	case cancel:
		v.run.canceled = true
		v.run.cancel()
	case wait:
		m.wakeAfter(v, act.wait)
	case forget:
		m.forget(v)
	case nothing:
		if v.desired && v.has == present && !v.expires.IsZero() {
			m.wakeAfter(v, v.expires.Sub(now))
		}
	}
}

func (m *Manager) wakeAfter(v *volume, d time.Duration) {
	v.timer = time.AfterFunc(d, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.wake(v)
	})
}

// wakeDevice does for a device what decideDevice says.
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

// wakeShared wakes all that an operation may have kept waiting.
func (m *Manager) wakeShared(d *device) {
	if d == nil {
		return
	}
	for u := range d.users {
		m.wake(u)
	}
	m.wakeDevice(d)
}

// forget drops the record of a volume that nobody wants and that is not there.
func (m *Manager) forget(v *volume) {
	delete(v.pod.volumes, v.key)
	stopTimer(v.timer)
	m.setRefs(v, nil)
	m.setDevice(v, nil)
	v.settle(nil)
	m.drop(v.pod)
}

// setDevice makes d the device that v comes from.
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

// deviceOf returns the record of a device, a new one if there is none.
func (m *Manager) deviceOf(p DevicePlugin, id Device) *device {
	d := &device{m: m, plugin: p, id: id, users: map[*volume]struct{}{}}
	if known := m.devices[d.key()]; known != nil {
		return known
	}
	m.devices[d.key()] = d
	return d
}

// setRefs notes which objects v depends on.
func (m *Manager) setRefs(v *volume, refs []Ref) {
	for _, r := range v.refs {
		delete(m.refs[r], v)
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
