package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
)

// A session is the use of one plugin: watching it, calling it again, and its end. A new plugin
// for a resource gets a new session at once. Late events of the old plugin belong to the old
// session and are ignored.

// The pauses before the manager watches a plugin again that went away and did not register since.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// session is the use of one plugin for one resource, until the plugin is replaced, withdrawn or
// given up.
type session struct {
	resource string
	endpoint string // identifies the plugin for withdraw
	plugin   Plugin
	// ctx ends when Run ends, or when the plugin is replaced or withdrawn. Calls for pods do not
	// use it, since they may still succeed.
	ctx    context.Context
	cancel context.CancelFunc

	// Manager.mu guards the fields below.
	options Options
	// since is the start of the session. If the plugin has sent no list of its devices by
	// grace after since, the session is given up.
	since  time.Time
	listed bool // the plugin has sent a list in the current watch
}

// Offer adds a plugin of this process for a resource. It replaces the resource's former plugin;
// pods keep their devices. It blocks on the plugin's Options and on the store. The manager owns
// p, and closes it even if Offer fails. The error is [ErrNotRunning], a [*PluginError], or names
// an invalid resource.
func (m *Manager) Offer(ctx context.Context, resource string, p Plugin) error {
	return m.offer(ctx, resource, "in this process", p)
}

// Withdraw removes the plugin of a resource, as if it had gone away. Pods keep
// their devices; pods that request new ones wait for the grace period. It does not
// block.
func (m *Manager) Withdraw(resource string) { m.withdraw(resource, "in this process") }

// offer does the work of Offer, for a plugin with an endpoint.
func (m *Manager) offer(ctx context.Context, name, endpoint string, p Plugin) error {
	s, err := m.open(ctx, name, endpoint, p)
	if err != nil {
		_ = p.Close()
		return err
	}
	// Not an error for the plugin, which can be used. Only a restart before its next registration
	// would not expect the resource.
	if err := m.saveNames(); err != nil {
		m.cfg.Log.Warn("failed to store name of resource", zap.String("resource", name), zap.Error(err))
	}
	m.cfg.Log.Info("device plugin registered", zap.String("resource", name), zap.String("endpoint", s.endpoint))
	return nil
}

// open makes the first call and, if that succeeds, starts the session. If it fails, a working
// plugin is not replaced.
func (m *Manager) open(ctx context.Context, name, endpoint string, p Plugin) (*session, error) {
	if err := CheckResource(name); err != nil {
		return nil, err
	}
	call, done := context.WithTimeout(ctx, m.cfg.Timeout)
	defer done()
	o, err := p.Options(call)
	if err != nil {
		return nil, fmt.Errorf("failed to get device plugin options: %w", &PluginError{name, "GetDevicePluginOptions", err}) // Kubernetes' test suite expects these words
	}
	// The call was made without the lock, so Run may have ended meanwhile.
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return nil, ErrNotRunning
	}
	if m.resources[name] == nil && len(m.resources) >= maxResources {
		return nil, fmt.Errorf("resource %q: %d resources are registered already; want at most that many", name, maxResources)
	}
	r := m.resource(name, "its plugin has not listed any yet")
	s := &session{resource: name, endpoint: endpoint, plugin: p, options: o, since: time.Now()}
	s.ctx, s.cancel = context.WithCancel(m.ctx)
	// The old list is kept until the new plugin sends one, so that an update of a plugin changes
	// neither capacity nor the health in pods' statuses.
	if old := r.session; old != nil {
		if old.endpoint != endpoint {
			m.cfg.Log.Warn("another device plugin registered for the resource", zap.String("resource", name),
				zap.String("endpoint", endpoint), zap.String("before", old.endpoint))
		}
		old.cancel()
	}
	// Set together with the end of the old session, whose ended and list then find that it is no
	// longer the resource's.
	r.session = s
	m.wg.Go(func() { m.attend(s) })
	return s, nil
}

// withdraw ends the session of an endpoint, if it is the current session of the resource. The
// withdrawal of a replaced plugin has no effect on its successor.
func (m *Manager) withdraw(name, endpoint string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil || r.session == nil || r.session.endpoint != endpoint {
		return
	}
	r.session.cancel()
	r.session = nil
	m.lose(r, "its plugin was withdrawn")
}

// attend watches a plugin until the session ends, and then closes the plugin. It is the session's
// only goroutine.
func (m *Manager) attend(s *session) {
	defer func() { _ = s.plugin.Close() }()
	defer s.cancel()
	pause := retry.Backoff{First: firstRetry, Max: lastRetry}
	for {
		began := time.Now()
		err := m.watch(s)
		if !m.ended(s, err) {
			return
		}
		// If the plugin worked for a while, the pause is short. If it fails at once, the pauses
		// grow, even if it listed devices before: each such change makes the waiting pods try
		// again.
		pause.Recovered(time.Since(began))
		if !pause.Wait(s.ctx) {
			return
		}
		m.renew(s)
	}
}

// watch watches the plugin once, and returns why the watch ended, which is never nil. The watch
// ends if the first list does not arrive in time. After the first list there is no deadline,
// since a plugin sends nothing while nothing changes.
func (m *Manager) watch(s *session) error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	late := time.AfterFunc(m.cfg.Timeout, func() {
		cancel(fmt.Errorf("plugin sent no device list within %v", m.cfg.Timeout))
	})
	defer late.Stop()
	// list is called on this goroutine.
	err := s.plugin.Watch(ctx, func(list []Device) {
		late.Stop()
		m.list(s, list)
	})
	// "plugin sent no device list within 30s" says more than the plugin's "canceled".
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if err == nil {
		err = errors.New("plugin ended its stream of device lists")
	}
	return err
}

// renew reads the options again, since the program behind the socket may be a new one. A failure
// is ignored: the following watch fails too, and its error is logged.
func (m *Manager) renew(s *session) {
	ctx, done := context.WithTimeout(s.ctx, m.cfg.Timeout)
	defer done()
	o, err := s.plugin.Options(ctx)
	if err != nil {
		return // the watch will return the error
	}
	m.mu.Lock()
	s.options = o
	m.mu.Unlock()
}

// ended records the end of a watch, and reports whether to try again. A plugin that ended its
// watch with its own error is not called again until it registers, as Kubernetes' end-to-end
// suite requires. A plugin that went away is called again until the grace period of its resource
// ends.
func (m *Manager) ended(s *session, err error) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[s.resource]
	// The plugin was replaced or withdrawn, so its end is not reported.
	if r.session != s || s.ctx.Err() != nil {
		return false
	}
	listed := s.listed
	s.listed = false
	// Each loss is logged once; failed attempts after it are not logged.
	if !r.lost || listed {
		m.cfg.Log.Warn("connection to device plugin lost", zap.String("resource", s.resource), zap.String("endpoint", s.endpoint), zap.Error(err))
	}
	m.lose(r, fmt.Sprintf("its plugin does not answer: %v", err))
	if errors.As(err, new(*resignedError)) || m.over(r) && time.Since(s.since) >= grace {
		m.cfg.Log.Warn("stopped calling device plugin until it registers again", zap.String("resource", s.resource), zap.Error(err))
		r.session = nil
		return false
	}
	return true
}

// lose records that a resource's plugin is gone. Manager.mu is held. Only the first loss sets the
// time, so that retries do not extend the grace period.
func (m *Manager) lose(r *resource, why string) {
	r.why = why
	if r.lost {
		return
	}
	r.lost, r.lostAt = true, time.Now()
	m.expire(r)
	// The pods with its devices are included, because their health is unknown now.
	m.subs.Publish(Change{Resources: []string{r.name}, Pods: r.owners(nil)})
}

// list applies a new list of devices. The session's goroutine calls it. If nothing changed, it
// writes and publishes nothing.
func (m *Manager) list(s *session, raw []Device) {
	list, dropped := normal(raw)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[s.resource]
	if r.session != s || s.ctx.Err() != nil {
		return
	}
	// Logged once for each watch, since a plugin may send the same list every second.
	if dropped > 0 && !s.listed {
		m.cfg.Log.Warn("ignored devices without ID, with a long or repeated ID, or beyond the limit",
			zap.String("resource", s.resource), zap.Int("devices", dropped))
	}
	back := r.lost
	same := slices.Equal(list, r.devices)
	// The first list of a new session is published even if it is equal, since pods that wait for
	// the plugin may be admitted.
	news := back || !s.listed || !same
	s.listed = true
	if !news {
		return
	}
	// An added or removed device counts as a change of its health. The kubelet does not report
	// removed ones.
	changed := func(id string) bool {
		before, was := find(r.devices, id)
		now, is := find(list, id)
		return back || was != is || before.Healthy != now.Healthy
	}
	owners := r.owners(changed)
	r.devices, r.lost, r.why = list, false, ""
	if r.expiry != nil {
		r.expiry.Stop()
	}
	m.subs.Publish(Change{Resources: []string{r.name}, Pods: owners})
}

// owners returns the pods with a device for which fits returns true, sorted. If fits is nil, it
// returns all pods with a device. Manager.mu is held.
func (r *resource) owners(fits func(id string) bool) []types.UID {
	var uids []types.UID
	for id, uid := range r.taken {
		if fits == nil || fits(id) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// ready returns nil if devices of a resource can be allocated at the time now. Otherwise it
// returns a [*NotYetError] with the end of the wait or, after that time, a [*GoneError]. The
// result may change without an event, only because time has passed; see expire. The caller holds
// Manager.mu.
func (m *Manager) ready(r *resource, now time.Time) error {
	notYet := func(until time.Time, why string) error {
		if now.Before(until) {
			return &NotYetError{Resource: r.name, Why: why, Until: until}
		}
		return &GoneError{Resource: r.name, Why: why}
	}
	// A pod with a damaged record blocks all new choices of its resources, since its devices are not
	// known.
	for _, b := range m.damaged {
		if b.hides(r.name) {
			return notYet(b.since.Add(grace), fmt.Sprintf("the devices of the running pod %s are not known, since their record was damaged; that pod has to end first", b.pod))
		}
	}
	switch s := r.session; {
	case s != nil && s.listed && !r.lost:
		return nil
	// A plugin that has just registered has Config.Timeout for its first list, even if the old
	// one's grace period is over.
	case s != nil && r.lost:
		until := r.lostAt.Add(grace)
		if first := s.since.Add(m.cfg.Timeout); first.After(until) {
			until = first
		}
		return notYet(until, r.why)
	// The plugin was replaced. The old list is known, but the new plugin has not sent one yet.
	case s != nil:
		return notYet(s.since.Add(m.cfg.Timeout), "its new plugin has not listed any yet")
	default:
		return notYet(r.lostAt.Add(grace), r.why)
	}
}
