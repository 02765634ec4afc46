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

// The registered drivers, and the pods that wait for one. The entry of a name
// outlives registrations: a pod may name a driver before its program starts, and
// the grace period counts from the loss of the driver.

// driver is the state of one driver name. Manager.mu guards it.
type driver struct {
	name    string
	plugins []*plugin // in the order of registration
	// lostAt is when the last instance deregistered, or when the name was first asked
	// for; why says so in words for events. Neither counts while there are plugins.
	lostAt  time.Time // while no instance is connected
	why     string
	waiting map[types.UID]bool // pods to be reported when an instance connects
}

// plugin is one instance of a driver: while it is updated there are two.
type plugin struct {
	name, endpoint string
	driver         Driver
	cancel         context.CancelFunc
	// calls counts the running calls. A call is added only under Manager.mu while
	// the plugin is listed, so that attend can remove the plugin from the list and
	// then wait for the rest.
	calls sync.WaitGroup

	// Guarded by Manager.mu.
	connected bool
	// health is the health that this instance reported. Each instance has its own:
	// the end of one of two does not make the other's devices unknown.
	health map[deviceName]*health
	stale  *time.Timer // when the first of health is too old
}

// Offer adds a driver that runs in this process. Of several drivers with the same
// name, which instance distinguishes, the newest is used. The manager owns d and
// closes it after Withdraw, when Run ends, or if Offer fails. Before Run it returns
// [ErrNotRunning].
func (m *Manager) Offer(name, instance string, d Driver) error { return m.offer(name, instance, d) }

// Withdraw removes a driver. Running calls are completed, and the driver is closed
// after them; Withdraw does not wait for that. Claims stay prepared. An unknown
// instance is ignored.
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

// enlist adds a plugin and starts its goroutines. After an error the caller has to
// close d.
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
	// Two plugins at one endpoint would be one program with two connections, which
	// Withdraw could not tell apart.
	if slices.ContainsFunc(entry.plugins, func(p *plugin) bool { return p.endpoint == endpoint }) {
		return fmt.Errorf("driver %s is registered at %s already", name, endpoint)
	}
	if len(entry.plugins) >= maxInstances {
		return fmt.Errorf("driver %s is registered at %d endpoints already, the most that are kept", name, maxInstances)
	}
	p := &plugin{name: name, endpoint: endpoint, driver: d, health: map[deviceName]*health{}}
	// The context is created only after start has succeeded, since it would
	// otherwise never be cancelled. The goroutine waits for it.
	ready := make(chan context.Context, 1)
	if err := m.start(func(context.Context) { m.attend(<-ready, p) }); err != nil {
		return err
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(m.ctx)
	ready <- ctx
	entry.plugins = append(entry.plugins, p)
	// A driver of this process is always connected; others report their connection.
	if _, remote := d.(follower); !remote {
		m.connect(p, true)
	}
	return nil
}

// driver returns the entry of a name, and creates it if it is new. Names that only
// claims have named are removed to make space; if all are registered, a new one is
// an error. Manager.mu is held.
func (m *Manager) driver(name string) (*driver, error) {
	if d := m.drivers[name]; d != nil {
		return d, nil
	}
	// The name that was lost first is removed. Its waiting pods are not reported
	// when it registers, but try again at the end of their grace period.
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

// await reports a pod once when a driver connects. Manager.mu is held.
func (m *Manager) await(name string, uid types.UID) {
	if d := m.drivers[name]; d != nil {
		d.waiting[uid] = true
	}
}

// unawait ends all waits of a pod whose claims are being undone. Manager.mu is
// held.
func (m *Manager) unawait(uid types.UID) {
	for _, d := range m.drivers {
		delete(d.waiting, uid)
	}
}

// connect records whether a plugin is connected, and reports the pods that wait for
// one. It ignores an unchanged state, and a plugin after its Withdraw. Manager.mu
// is held.
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
		// The Change has no effect on a pod that is gone; its reaper is woken
		// instead of waiting for the end of its pause. The channel holds one
		// wake-up, which is enough.
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

// lost reports a driver without a connected instance. Manager.mu is held.
func (m *Manager) lost(d *driver, name string) {
	if !slices.ContainsFunc(d.plugins, func(p *plugin) bool { return p.connected }) {
		m.notify(Change{Lost: []string{name}})
	}
}

// follower is a Driver that reports whether it is connected, until ctx ends.
// connected is called only from follow's goroutine.
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
	m.mu.Lock() // removed from the list, also at the end of Run
	if d := m.drivers[p.name]; d != nil {
		d.plugins = slices.DeleteFunc(d.plugins, func(x *plugin) bool { return x == p })
	}
	m.mu.Unlock()
	// The connection stays open until every call has returned. Calls have their own
	// context and deadline, which Withdraw does not end.
	p.calls.Wait()
	if err := p.driver.Close(); err != nil {
		m.cfg.Log.Debug("failed to close driver", zap.String("driver", p.name), zap.Error(err))
	}
}

// DriverState is the state of one instance of a driver. Endpoint is the path of its
// socket, or the instance given to Offer.
type DriverState struct {
	Name, Endpoint string
	Connected      bool
}

// Drivers returns the registered instances, sorted by name and then by
// registration.
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
