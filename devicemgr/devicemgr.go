package devicemgr

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
	"github.com/nodewright/nodewright/numa"
)

// Limits of a Manager.
const (
	// defaultGrace is the time for which the kubelet keeps the capacity of a stopped plugin.
	defaultGrace = 5 * time.Minute
	// defaultTimeout is the device plugin API's for PreStartContainer
	// (KubeletPreStartContainerRPCTimeoutInSecs). The kubelet does not bound the
	// other calls.
	defaultTimeout = 30 * time.Second
	// maxResources limits the resources, since plugins may come and go.
	maxResources = 512
)

// Store stores values durably: one for each pod that has devices, and one with the
// names of resources. checkpoint.Store implements it. Its methods may block, and
// are called from many goroutines, but only once at a time for a pod's key.
type Store interface {
	// Write returns when the value is durable.
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or only a damaged one.
	Read(key string) ([]byte, error)
	// Delete removes the value of a key; a missing key is a success.
	Delete(key string) error
	// Keys returns all keys, in any order. The manager ignores unknown ones.
	Keys() ([]string, error)
}

// Config holds what a Manager needs. Store is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// SocketDir is the directory of kubelet.sock, at which plugins register, and of
	// the plugins' own sockets. The kubelet uses /var/lib/kubelet/device-plugins. At
	// its start Run removes all sockets in it, so that plugins register again. If it
	// is "", kubelet.sock is not served.
	SocketDir string
	// Store must not be used by another Manager.
	Store Store
	// Machine has the NUMA nodes of the machine; none.
	Machine numa.Machine
	// Claimed reports whether a container gets a resource from elsewhere, such as
	// an extended resource through DRA; never. It is called without locks.
	Claimed func(pod *v1.Pod, container, resource string) bool

	Grace   time.Duration // how long the capacity of a lost plugin is kept; 5m
	Timeout time.Duration // of each call to a plugin, and until its first list; 30s

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults returns the configuration with every optional field set.
func (c Config) withDefaults() Config {
	if c.Claimed == nil {
		c.Claimed = func(*v1.Pod, string, string) bool { return false }
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate reports all wrong fields at once, each with its value.
func (c Config) validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("Config.Store is required"))
	}
	if c.SocketDir != "" && !filepath.IsAbs(c.SocketDir) {
		errs = append(errs, fmt.Errorf("Config.SocketDir is %q; want an absolute path", c.SocketDir))
	}
	// Caught here, since listening at a longer path fails with an error that names
	// no cause, at each attempt of Run.
	if n := len(filepath.Join(c.SocketDir, socketName)); n > maxSocketPath {
		errs = append(errs, fmt.Errorf("Config.SocketDir is %q; want a path that leaves room for %s within %d bytes", c.SocketDir, socketName, maxSocketPath))
	}
	if c.Grace < 0 {
		errs = append(errs, fmt.Errorf("Config.Grace is %v; want a positive duration", c.Grace))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Config.Timeout is %v; want a positive duration", c.Timeout))
	}
	// The zero Machine is allowed: hints then have no nodes to speak of.
	if len(c.Machine.Nodes) > 0 {
		if err := c.Machine.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("Config.Machine: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Manager keeps the devices of plugins and the pods that have them. Its methods may
// be called from any goroutine; only those with a ctx wait for plugins. The lock mu
// is never held during a call of a plugin or of the store.
type Manager struct {
	cfg Config
	met *metrics

	// A lock of its own, since Restore reads the store, which may block.
	restoring sync.Mutex // held by Restore
	restored  bool       // guarded by restoring

	// mu guards the fields from here to shared except subs and wg, and turns and
	// inexact.
	mu        sync.Mutex
	resources map[string]*resource
	pods      map[types.UID]*record // never changed, only replaced
	// pending has the pods between reserve and the end of store, one attempt for
	// each.
	pending map[types.UID]*Admission
	// blind has the running pods whose records were damaged.
	blind   map[types.UID]*blind
	running map[types.UID]map[string]bool // containers, as of Restore
	// strikes counts how often a plugin went away during a call for a pod.
	strikes map[types.UID]int
	subs    subscription.List[Change]
	ctx     context.Context // Run's; nil before
	wg      sync.WaitGroup  // of sessions
	serving error           // why plugins cannot register; nil if they can
	counted map[string]bool // resources with a metric of registrations

	shared bool          // a kubelet's checkpoint is kept up to date
	told   chan struct{} // has a token while the checkpoint is out of date

	storing sync.Mutex // held while names are written
	// turns orders the writes and deletions of each pod's record; an entry exists
	// while it is in use.
	turns map[types.UID]*turn
	// inexact are the pods whose record in the store may be wrong: a write or a
	// deletion failed.
	inexact map[types.UID]bool
}

// resource is the devices that plugins offer under one name. Manager.mu guards it;
// devices are never changed, only replaced. A resource is never removed, so that
// pointers to it remain valid; maxResources limits the number that plugins can add.
type resource struct {
	name    string
	devices []Device             // sorted
	taken   map[string]types.UID // the pod that has a device
	// A session may exist while lost is true: the plugin is being called again.
	session *session // with its plugin; nil if there is none
	// lost means that no device can be allocated: the plugin has gone away, has
	// not registered, or has not listed devices yet. lostAt and why say since
	// when, and why.
	lost   bool
	lostAt time.Time
	why    string
	expiry *time.Timer // of the grace, while lost
}

// New checks cfg and returns a Manager, which Run starts. It touches neither disk
// nor sockets. The error names every invalid field.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("devicemgr: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("devicemgr: %w", err)
	}
	return &Manager{
		counted: map[string]bool{},
		cfg:     cfg, met: met,
		resources: map[string]*resource{},
		pods:      map[types.UID]*record{},
		pending:   map[types.UID]*Admission{},
		blind:     map[types.UID]*blind{},
		running:   map[types.UID]map[string]bool{},
		strikes:   map[types.UID]int{},
		subs:      subscription.List[Change]{Merge: merge},
		turns:     map[types.UID]*turn{},
		inexact:   map[types.UID]bool{},
		told:      make(chan struct{}, 1),
	}, nil
}

// Run lets plugins register and watches their devices until ctx ends; it returns
// nil once all calls of plugins and of the store have returned. It may be called
// once, after [Manager.Restore]. It blocks.
func (m *Manager) Run(ctx context.Context) error {
	// If the caller did not call Restore, every recorded pod counts as running:
	// keeping a device too long is safe, allocating it twice is not.
	if err := m.Restore(nil); err != nil && !errors.Is(err, errRestored) {
		m.cfg.Log.Error("failed to restore device records", zap.Error(err))
	}
	// From here on Offer takes plugins, and timers of the grace run: expire made
	// none before.
	m.mu.Lock()
	m.ctx = ctx
	for _, r := range m.resources {
		if r.lost {
			m.expire(r)
		}
	}
	shared := m.shared
	m.mu.Unlock()
	// Only if a kubelet's checkpoint was found: on other nodes none is written.
	if shared {
		m.wg.Go(func() { m.keepTold(ctx) })
	}
	if m.cfg.SocketDir != "" {
		m.serve(ctx)
	} else {
		<-ctx.Done()
	}
	m.mu.Lock()
	for _, r := range m.resources {
		// No timer may publish after the subscribers are dropped.
		if r.expiry != nil {
			r.expiry.Stop()
		}
	}
	m.mu.Unlock()
	// Subscribers are not informed of the end. The contexts of sessions are
	// children of ctx; Run waits for the sessions, since they use the store and the
	// log.
	m.subs.Drop()
	m.wg.Wait()
	m.subs.Wait()
	return nil
}

// resource returns the resource of a name, and creates it if it is new. Manager.mu
// is held. why is a text for people: why there are no devices yet. A new resource
// is lost from the start: pods wait for its plugin for Config.Grace.
func (m *Manager) resource(name, why string) *resource {
	r := m.resources[name]
	if r == nil {
		r = &resource{name: name, taken: map[string]types.UID{}, lost: true, lostAt: time.Now(), why: why}
		m.resources[name] = r
		m.expire(r)
	}
	return r
}

// expire starts a timer that informs the subscribers at the end of a lost
// resource's grace period. Manager.mu is held. At that moment the error for waiting
// pods changes from NotYetError to GoneError, so that they have to be admitted
// again.
func (m *Manager) expire(r *resource) {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	if m.ctx == nil || m.ctx.Err() != nil {
		return // Run starts the timer, or has ended
	}
	r.expiry = time.AfterFunc(m.cfg.Grace-time.Since(r.lostAt), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		// The plugin may have come back while the timer waited for the lock.
		if r.lost {
			m.subs.Publish(Change{Resources: []string{r.name}})
		}
	})
}

// over reports that a lost resource's grace has passed. Manager.mu is held.
func (m *Manager) over(r *resource) bool { return r.lost && time.Since(r.lostAt) >= m.cfg.Grace }

// Expect adds resources that the node's status lists from before a restart: for Config.Grace,
// pods that request one wait for its plugin. Otherwise such a resource would be unknown if the
// records are lost. The error has the invalid names; the others are added. It blocks on the
// store.
func (m *Manager) Expect(names ...string) error {
	var errs []error
	m.mu.Lock()
	for _, n := range names {
		if err := checkResource(n); err != nil {
			errs = append(errs, err)
			continue
		}
		m.resource(n, "its plugin has not registered yet")
	}
	m.mu.Unlock()
	return errors.Join(append(errs, m.saveNames())...)
}

// Count is the number of devices of a resource.
type Count struct {
	// Capacity is the number of all devices; it is kept for Config.Grace after the
	// plugin is lost.
	Capacity int
	// Allocatable is the number of healthy devices, in use or not.
	Allocatable int
	// Used is the number of devices that pods have. It may exceed Allocatable.
	Used int
	// Free is the number of healthy devices that no pod has; 0 while the plugin is
	// away.
	Free int
	// Away reports that the plugin was lost, has not registered, or has not listed
	// devices yet, so that pods may have to wait.
	Away bool
}

// Capacity returns the counts of every known resource. A resource whose plugin was
// lost for longer than Config.Grace has zero, which a node's status has to show, as
// the kubelet's does. The caller may change the map.
func (m *Manager) Capacity() map[v1.ResourceName]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[v1.ResourceName]Count, len(m.resources))
	for name, r := range m.resources {
		c := Count{Used: len(r.taken), Away: r.lost}
		// During the grace period the number is kept, so that a plugin's restart
		// does not look like a shrinking node to the scheduler.
		if !m.over(r) {
			c.Capacity = len(r.devices)
		}
		if !r.lost {
			c.Allocatable = healthy(r.devices)
			c.Free = c.Allocatable
			// A used device that is unhealthy or no longer listed is not counted as
			// allocatable.
			for id := range r.taken {
				if d, ok := find(r.devices, id); ok && d.Healthy {
					c.Free--
				}
			}
		}
		out[v1.ResourceName(name)] = c
	}
	return out
}

// healthy returns how many devices of a list are healthy.
func healthy(list []Device) (n int) {
	for _, d := range list {
		if d.Healthy {
			n++
		}
	}
	return n
}

// Devices returns the healthy devices of every resource, sorted by ID. Resources
// whose plugin is away are left out, since their lists are outdated. The lists are
// shared: do not change them.
func (m *Manager) Devices() map[string][]Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]Device{}
	for name, r := range m.resources {
		if r.lost {
			continue
		}
		for _, d := range r.devices {
			if d.Healthy {
				out[name] = append(out[name], d)
			}
		}
	}
	return out
}
