package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Who the drivers are, and which pods wait for one. Driver names live longer than
// registrations: a pod may name a driver before its program comes up, and the grace
// period counts from the moment it was lost.

// driver is what is known under one driver name. Manager.mu guards it.
type driver struct {
	name    string
	plugins []*plugin // in the order in which they came
	// lostAt is when the last instance deregistered, or when the name was first asked
	// for; why says so in words for events. Neither counts while there are plugins.
	lostAt  time.Time // while there are none
	why     string
	waiting map[types.UID]bool // pods to be told when one comes
}

// plugin is one instance of a driver: while it is updated there are two.
type plugin struct {
	name, endpoint string
	driver         Driver
	cancel         context.CancelFunc
	// calls are those under way. One is added under Manager.mu only, while the plugin
	// is listed, so that attend can wait for the rest once it has taken the plugin
	// off the list.
	calls sync.WaitGroup

	// Guarded by Manager.mu.
	connected bool
	// health is what this instance reported. Each instance has its own: the end of
	// one of two does not make the other's devices unknown.
	health map[deviceName]*health
	stale  *time.Timer // when the first of health is too old
}

// Offer takes a driver of this process. instance reports several of one name apart;
// the newest one is used. The manager owns d from here on, and closes it when it is
// withdrawn, when Run ends, and if Offer fails. Before Run the error is
// [ErrNotRunning].
func (m *Manager) Offer(name, instance string, d Driver) error { return m.offer(name, instance, d) }

// Withdraw ends the use of a driver. Calls that are under way are let finish, and the
// driver is closed after them; Withdraw does not wait for that. Claims keep what the
// driver prepared. An instance that is not known is no error.
func (m *Manager) Withdraw(name, instance string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.drivers[name]
	if d == nil {
		return
	}
	i := slices.IndexFunc(d.plugins, func(p *plugin) bool { return p.endpoint == instance })
	if i < 0 {
		return
	}
	p := d.plugins[i]
	d.plugins = slices.Delete(d.plugins, i, i+1)
	if len(d.plugins) == 0 {
		d.lostAt, d.why = time.Now(), "it has deregistered, and not come back"
	}
	// The plugin is off the list before its context ends, so that no call starts on a
	// driver that is about to be closed.
	m.lost(d, name)
	p.cancel()
	m.unknown(p)
	m.cfg.Log.Info("driver deregistered", zap.String("driver", name), zap.String("endpoint", instance))
}

// offer is Offer, also for drivers behind a socket: their instance is the socket's
// path.
func (m *Manager) offer(name, endpoint string, d Driver) error {
	if err := m.enlist(name, endpoint, d); err != nil {
		return errors.Join(err, d.Close())
	}
	m.cfg.Log.Info("driver registered", zap.String("driver", name), zap.String("endpoint", endpoint))
	return nil
}

// enlist adds a plugin and starts what attends to it. After an error d is still the
// caller's to close.
func (m *Manager) enlist(name, endpoint string, d Driver) error {
	if err := checkDriver(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, err := m.driver(name)
	if err != nil {
		return err
	}
	// Two plugins at one endpoint would be one program with two connections, and
	// Withdraw could not tell which of them has gone.
	if slices.ContainsFunc(entry.plugins, func(p *plugin) bool { return p.endpoint == endpoint }) {
		return fmt.Errorf("driver %s is registered at %s already", name, endpoint)
	}
	if len(entry.plugins) >= maxInstances {
		return fmt.Errorf("driver %s is registered at %d endpoints already, the most that are kept", name, maxInstances)
	}
	p := &plugin{name: name, endpoint: endpoint, driver: d, health: map[deviceName]*health{}}
	// The context is made only after start has succeeded, since nobody would cancel
	// it otherwise. The goroutine waits for it.
	ready := make(chan context.Context, 1)
	if err := m.start(func(context.Context) { m.attend(<-ready, p) }); err != nil {
		return err
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(m.ctx)
	ready <- ctx
	entry.plugins = append(entry.plugins, p)
	// A driver of this process is always connected; others report it.
	if _, remote := d.(follower); !remote {
		m.connect(p, true)
	}
	return nil
}

// driver returns what is known under a name, and makes it if it is new. Names that
// come from claims and that nobody has registered make room for others; if all are
// registered, a new one is an error. Manager.mu is held.
func (m *Manager) driver(name string) (*driver, error) {
	if d := m.drivers[name]; d != nil {
		return d, nil
	}
	// The longest lost goes first. Its waiting pods are not told of its return, but
	// try again at the end of their grace period.
	if len(m.drivers) >= maxDrivers {
		var oldest *driver
		for _, d := range m.drivers {
			if len(d.plugins) == 0 && (oldest == nil || d.lostAt.Before(oldest.lostAt)) {
				oldest = d
			}
		}
		if oldest == nil {
			return nil, fmt.Errorf("driver %s: there are %d drivers already, the most that are kept", name, maxDrivers)
		}
		delete(m.drivers, oldest.name)
	}
	d := &driver{name: name, lostAt: time.Now(), why: "it has not registered yet", waiting: map[types.UID]bool{}}
	m.drivers[name] = d
	return d, nil
}

// plugin finds the instance to call for a pod: the newest that is connected, or else
// the newest. Without any, the pod is noted as waiting, and the error is a
// NotYetError within the grace period and a GoneError after it. Manager.mu is held.
func (m *Manager) plugin(name, claim string, uid types.UID) (*plugin, error) {
	d, err := m.driver(name)
	if err != nil {
		return nil, &ClaimError{claim, err}
	}
	for _, p := range slices.Backward(d.plugins) {
		if p.connected {
			return p, nil
		}
	}
	// A call to a driver that is registered and not connected fails at once as
	// ErrAway, which says more than an error without a call, and finish has the pod
	// wait.
	if n := len(d.plugins); n > 0 {
		return d.plugins[n-1], nil
	}
	m.await(name, uid)
	if until := d.lostAt.Add(m.cfg.Grace); time.Now().Before(until) {
		return nil, &NotYetError{Driver: name, Claim: claim, Why: d.why, Until: until}
	}
	return nil, &GoneError{Driver: name, Claim: claim, Why: d.why}
}

// await has a pod told when a driver connects, once. Manager.mu is held.
func (m *Manager) await(name string, uid types.UID) {
	if d := m.drivers[name]; d != nil {
		d.waiting[uid] = true
	}
}

// unawait ends all waits of a pod whose claims are being undone: a driver that comes
// has nothing to prepare for it. Manager.mu is held.
func (m *Manager) unawait(uid types.UID) {
	for _, d := range m.drivers {
		delete(d.waiting, uid)
	}
}

// connect notes whether a plugin is connected, and informs those who wait for one. A
// report that is no change, or that comes from a plugin after its Withdraw, is
// ignored. Manager.mu is held.
func (m *Manager) connect(p *plugin, connected bool) {
	d := m.drivers[p.name]
	if p.connected == connected || d == nil || !slices.Contains(d.plugins, p) {
		return
	}
	p.connected = connected
	if !connected {
		m.lost(d, p.name)
		return
	}
	c := Change{Drivers: []string{p.name}}
	for uid := range d.waiting {
		c.Pods = append(c.Pods, uid)
		// A pod that is gone has no worker to hear of the Change; its reaper need not
		// sit out its pause. The channel holds one wake-up, which is enough.
		if r := m.reaping[uid]; r != nil {
			select {
			case r.wake <- struct{}{}:
			default:
			}
		}
	}
	clear(d.waiting)
	m.notify(c)
}

// lost reports a driver of which no instance is connected any more. Manager.mu is
// held.
func (m *Manager) lost(d *driver, name string) {
	if !slices.ContainsFunc(d.plugins, func(p *plugin) bool { return p.connected }) {
		m.notify(Change{Lost: []string{name}})
	}
}

// follower is a Driver that reports whether it is connected, until ctx ends.
// connected is called from follow's goroutine alone.
type follower interface {
	follow(ctx context.Context, connected func(bool))
}

// attend sees to one plugin until it is withdrawn or Run ends, and closes the driver.
// It returns when nothing of the plugin is running any more.
func (m *Manager) attend(ctx context.Context, p *plugin) {
	var wg sync.WaitGroup
	if f, ok := p.driver.(follower); ok {
		wg.Go(func() {
			f.follow(ctx, func(connected bool) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.connect(p, connected)
			})
		})
	}
	wg.Go(func() { m.watch(ctx, p) })
	<-ctx.Done()
	wg.Wait()
	m.mu.Lock() // nobody takes it any more, also at the end of Run
	if d := m.drivers[p.name]; d != nil {
		d.plugins = slices.DeleteFunc(d.plugins, func(x *plugin) bool { return x == p })
	}
	m.mu.Unlock()
	// The connection stays open until every call has its answer. Calls have a context
	// and a deadline of their own, which Withdraw does not cut short.
	p.calls.Wait()
	if err := p.driver.Close(); err != nil {
		m.cfg.Log.Debug("driver not closed", zap.String("driver", p.name), zap.Error(err))
	}
}

// DriverState is how it stands with one instance of a driver. Endpoint is the path of
// its socket, or the instance that Offer was given.
type DriverState struct {
	Name, Endpoint string
	Connected      bool
}

// Drivers lists those that are registered, by name and, within one, in the order
// in which they came.
func (m *Manager) Drivers() []DriverState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []DriverState
	for _, d := range m.drivers {
		for _, p := range d.plugins {
			out = append(out, DriverState{p.name, p.endpoint, p.connected})
		}
	}
	slices.SortStableFunc(out, func(a, b DriverState) int { return strings.Compare(a.Name, b.Name) })
	return out
}
