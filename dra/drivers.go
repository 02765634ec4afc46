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

// The registered drivers, and the pods that wait for one. The entry of a name exists longer than
// its registrations: a pod may name a driver before the driver starts, and the grace period
// counts from the loss of the driver.

// driver is the state of one driver name. Manager.mu guards it.
type driver struct {
	name    string
	plugins []*plugin // in the order of registration
	// lostAt is the time at which the last instance disconnected, or at which a pod first named
	// the driver. why describes it for events. Both have no meaning while an instance is
	// connected.
	lostAt  time.Time // while no instance is connected
	why     string
	waiting map[types.UID]bool // pods to report when an instance connects
}

// plugin is one instance of a driver. During an update of the driver there are two.
type plugin struct {
	name, endpoint string
	driver         Driver
	cancel         context.CancelFunc
	// calls counts the running calls. It is increased only under Manager.mu while the plugin is
	// listed, so that attend can remove the plugin from the list and then wait for the calls.
	calls sync.WaitGroup

	// Manager.mu guards the fields below.
	connected bool
	// health is the health that this instance has reported. It is kept per instance, so that the
	// end of one of two instances does not make the other's devices unknown.
	health map[deviceName]*health
	stale  *time.Timer // fires when the first entry of health times out
}

// Offer adds a driver that runs in this process. instance distinguishes drivers with the same
// name; the newest is used. The manager owns d, and closes it after Withdraw, when Run ends, or
// if Offer fails. Before Run, Offer returns [ErrNotRunning].
func (m *Manager) Offer(name, instance string, d Driver) error { return m.offer(name, instance, d) }

// Withdraw removes a driver. Running calls are completed, and then the driver is closed; Withdraw
// does not wait for that. Claims remain prepared. An unknown instance is ignored.
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
		d.lostAt, d.why = time.Now(), "it has deregistered, and has not registered again"
	}
	// Removed from the list before its context ends, so that no call starts on a driver that is
	// about to be closed.
	m.lost(d, name)
	p.cancel()
	m.unknown(p)
	m.cfg.Log.Info("driver deregistered", zap.String("driver", name), zap.String("endpoint", instance))
}

// offer does the work of Offer, also for drivers behind a socket, whose endpoint is the socket's
// path.
func (m *Manager) offer(name, endpoint string, d Driver) error {
	if err := m.enlist(name, endpoint, d); err != nil {
		return errors.Join(err, d.Close())
	}
	m.cfg.Log.Info("driver registered", zap.String("driver", name), zap.String("endpoint", endpoint))
	return nil
}

// enlist adds a plugin and starts its goroutines. If it fails, the caller has to close d.
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
	// Two plugins at one endpoint would be one program with two connections, which Withdraw could
	// not tell apart.
	if slices.ContainsFunc(entry.plugins, func(p *plugin) bool { return p.endpoint == endpoint }) {
		return fmt.Errorf("driver %s is registered at %s already", name, endpoint)
	}
	if len(entry.plugins) >= maxInstances {
		return fmt.Errorf("driver %s is registered at %d endpoints already; want at most that many", name, maxInstances)
	}
	p := &plugin{name: name, endpoint: endpoint, driver: d, health: map[deviceName]*health{}}
	// The context is created after start has succeeded, since otherwise nothing would cancel it.
	// The goroutine waits for it.
	ready := make(chan context.Context, 1)
	if err := m.start(func(context.Context) { m.attend(<-ready, p) }); err != nil {
		return err
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(m.ctx)
	ready <- ctx
	entry.plugins = append(entry.plugins, p)
	// A driver of this process is always connected. Others report their connection.
	if _, remote := d.(follower); !remote {
		m.connect(p, true)
	}
	return nil
}

// driver returns the entry of a name, and creates it if it is new. To make space, it removes a
// name that only claims have named. If all names have registered drivers, it returns an error.
// Manager.mu is held.
func (m *Manager) driver(name string) (*driver, error) {
	if d := m.drivers[name]; d != nil {
		return d, nil
	}
	// The name that was lost first is removed. The pods that wait for it are not reported when it
	// registers; they try again at the end of their grace period.
	if len(m.drivers) >= maxDrivers {
		var oldest *driver
		for _, d := range m.drivers {
			if len(d.plugins) == 0 && (oldest == nil || d.lostAt.Before(oldest.lostAt)) {
				oldest = d
			}
		}
		if oldest == nil {
			return nil, fmt.Errorf("driver %s: %d drivers are registered already; want at most that many", name, maxDrivers)
		}
		delete(m.drivers, oldest.name)
	}
	d := &driver{name: name, lostAt: time.Now(), why: "it has not registered yet", waiting: map[types.UID]bool{}}
	m.drivers[name] = d
	return d, nil
}

// plugin returns the instance to call for a pod: the newest connected one, or else the newest. If
// there is none, the pod waits for the driver, and the error is a NotYetError within the grace
// period and a GoneError after it. Manager.mu is held.
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
	// If a driver is registered but not connected, the call fails at once with ErrAway. Its error
	// says more than one without a call, and finish makes the pod wait.
	if n := len(d.plugins); n > 0 {
		return d.plugins[n-1], nil
	}
	m.await(name, uid)
	if until := d.lostAt.Add(grace); time.Now().Before(until) {
		return nil, &NotYetError{Driver: name, Claim: claim, Why: d.why, Until: until}
	}
	return nil, &GoneError{Driver: name, Claim: claim, Why: d.why}
}

// await records that a pod has to be reported when a driver connects. The pod is reported once.
// Manager.mu is held.
func (m *Manager) await(name string, uid types.UID) {
	if d := m.drivers[name]; d != nil {
		d.waiting[uid] = true
	}
}

// unawait ends all waits of a pod. Its claims are being unprepared. Manager.mu is held.
func (m *Manager) unawait(uid types.UID) {
	for _, d := range m.drivers {
		delete(d.waiting, uid)
	}
}

// connect records whether a plugin is connected, and reports the pods that wait for the driver.
// It ignores an unchanged state, and a plugin after its Withdraw. Manager.mu is held.
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
		// A Change has no effect on a pod that is gone, so its reaper is woken directly.
		if r := m.reaping[uid]; r != nil {
			r.wake.Set()
		}
	}
	clear(d.waiting)
	m.notify(c)
}

// lost reports a driver that has no connected instance. Manager.mu is held.
func (m *Manager) lost(d *driver, name string) {
	if !slices.ContainsFunc(d.plugins, func(p *plugin) bool { return p.connected }) {
		m.notify(Change{Lost: []string{name}})
	}
}

// follower is a Driver whose connection may be lost. follow reports whether it is connected,
// until ctx ends. connected is called only from follow's goroutine.
type follower interface {
	follow(ctx context.Context, connected func(bool))
}

// attend watches one plugin until it is withdrawn or Run ends. Then it waits for the plugin's
// calls and closes the driver.
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
	m.mu.Lock() // at the end of Run it is still listed
	if d := m.drivers[p.name]; d != nil {
		d.plugins = slices.DeleteFunc(d.plugins, func(x *plugin) bool { return x == p })
	}
	m.mu.Unlock()
	// The connection stays open until every call has returned. Withdraw does not end calls, which
	// have their own context and deadline.
	p.calls.Wait()
	if err := p.driver.Close(); err != nil {
		m.cfg.Log.Debug("failed to close driver", zap.String("driver", p.name), zap.Error(err))
	}
}

// DriverState is the state of one instance of a driver. Endpoint is the path of its socket, or
// the instance given to Offer.
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
