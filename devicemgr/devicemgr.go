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
	// defaultGrace is how long the kubelet keeps the capacity of a plugin
	// that has stopped.
	defaultGrace = 5 * time.Minute
	// defaultTimeout is the device plugin API's for PreStartContainer
	// (KubeletPreStartContainerRPCTimeoutInSecs). The kubelet does not bound the
	// other calls.
	defaultTimeout = 30 * time.Second
	// maxResources bounds what is remembered of plugins that come and go.
	maxResources = 512
)

// Store keeps values over a crash: one for each pod that has devices, and one with
// the names of resources. A checkpoint.Store is one. Its methods may block for as
// long as a disk does, and are called from many goroutines, but for one pod's key
// one at a time.
type Store interface {
	// Write returns when the value is durable: plugins and pods rely on it
	// afterwards.
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or none that is whole.
	Read(key string) ([]byte, error)
	// Delete makes Read of the key fail; a missing key is no error.
	Delete(key string) error
	// Keys lists all keys, in no order. Those that the manager does not know are
	// left alone.
	Keys() ([]string, error)
}

// Config holds what a Manager needs. Store is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// SocketDir is where plugins find kubelet.sock to register at, and have
	// their own sockets: the kubelet's is /var/lib/kubelet/device-plugins.
	// Sockets in it are removed at each start, which is how plugins hear of
	// it. Plugins cannot register there.
	SocketDir string
	// It must be used by one Manager at a time.
	Store Store
	// Machine has the NUMA nodes that devices can be near to; none.
	Machine numa.Machine
	// Claimed reports that a container has a resource from elsewhere, such as
	// an extended resource through DRA; never. It is called without locks.
	Claimed func(pod *v1.Pod, container, resource string) bool

	Grace   time.Duration // that a plugin may be away before its capacity is; 5m
	Timeout time.Duration // of each call to a plugin, and for its first list; 30s

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults returns the configuration with every optional field set, so that no
// other code asks for nil.
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

// Manager knows the devices of plugins and which pods have them. Its methods may be
// called from any goroutine; only those with a ctx wait for plugins. The lock mu is
// never held over a call of a plugin or of the store.
type Manager struct {
	cfg Config
	met *metrics

	// It is a lock of its own since Restore reads the store, which may block.
	restoring sync.Mutex // held by Restore
	restored  bool       // guarded by restoring

	// mu guards the fields from here to shared, but for subs and wg, and turns and
	// inexact.
	mu        sync.Mutex
	resources map[string]*resource
	pods      map[types.UID]*record // never changed, only replaced
	// pending has the pods between reserve and the end of store: one attempt at a
	// time for each.
	pending map[types.UID]*Admission
	// blind has the running pods whose records were damaged.
	blind   map[types.UID]*blind
	running map[types.UID]map[string]bool // containers, as of Restore
	// strikes says how often a plugin went away in the middle of a call for a pod.
	strikes map[types.UID]int // plugins that died while they allocated for a pod
	subs    subscription.List[Change]
	ctx     context.Context // Run's; nil before
	wg      sync.WaitGroup  // of sessions
	serving error           // why plugins cannot register now
	counted map[string]bool // resources that metrics of registrations name

	shared bool          // a kubelet's checkpoint is kept up to date
	told   chan struct{} // that it is not

	storing sync.Mutex // held while names are written
	// turns orders writes and deletions of each pod's record; an entry lives while
	// somebody uses it.
	turns map[types.UID]*turn
	// inexact are pods whose record in the store may say something else than what they
	// have: it could not be written or deleted.
	inexact map[types.UID]bool
}

// resource is what plugins offer under one name. Manager.mu guards it; devices are
// never changed, only replaced. A resource is never forgotten, so that a pointer to
// one stays good; the number of them is bounded by maxResources where plugins can
// add them.
type resource struct {
	name    string
	devices []Device             // sorted
	taken   map[string]types.UID // who has a device
	// A session may exist while lost is true: the plugin is being asked again.
	session *session // with its plugin; nil if there is none
	// lost reports that its devices cannot be had: the plugin has gone, or not
	// come, or not yet listed any. Since when, and why.
	lost   bool
	lostAt time.Time
	why    string
	expiry *time.Timer // of the grace, while lost
}

// New checks cfg and returns a Manager at rest. It touches neither disk nor
// sockets. The error names every wrong field.
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
// nil when no call of a plugin or of the store is under way any more. It may be
// called once, after [Manager.Restore]. It blocks.
func (m *Manager) Run(ctx context.Context) error {
	// Without a Restore of the caller, every recorded pod is taken for a running
	// one: to keep a device too long is safe, to give it twice is not.
	if err := m.Restore(nil); err != nil && !errors.Is(err, errRestored) {
		m.cfg.Log.Error("devices of before the restart are not known", zap.Error(err))
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
	// Only where a kubelet's checkpoint was found: an agent on a node without one
	// writes none.
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
		// No timer may publish once the subscribers are gone.
		if r.expiry != nil {
			r.expiry.Stop()
		}
	}
	m.mu.Unlock()
	// Subscribers are not told of the end. Sessions end by their contexts, which
	// are children of ctx, and are waited for: their calls use the store and the
	// log.
	m.subs.Drop()
	m.wg.Wait()
	m.subs.Wait()
	return nil
}

// resource returns what there is under a name, and makes it if it is new.
// Manager.mu is held. why says, for people, why it has no devices yet. A new one is
// lost from the start: pods wait for its plugin for Config.Grace.
func (m *Manager) resource(name, why string) *resource {
	r := m.resources[name]
	if r == nil {
		r = &resource{name: name, taken: map[string]types.UID{}, lost: true, lostAt: time.Now(), why: why}
		m.resources[name] = r
		m.expire(r)
	}
	return r
}

// expire has subscribers told when the grace of a lost resource is over. Manager.mu
// is held. Nothing changes by itself at that moment but the answer to "wait or
// reject?": pods that wait have to be told to ask again.
func (m *Manager) expire(r *resource) {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	if m.ctx == nil || m.ctx.Err() != nil {
		return // Run does it, or has ended
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

// Expect reports resources that the node has had, as its status says: pods that ask
// for one wait for its plugin for Config.Grace from now on. Without it, a pod of a
// node whose records were lost would be taken for one that asks for resources of
// nobody. Names that cannot be those of devices are in the error; the others count
// all the same. It blocks for the store.
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

// Count is how many devices of a resource there are.
type Count struct {
	// Capacity are all; it is kept for Config.Grace when the plugin goes.
	Capacity int
	// Allocatable are those that are healthy, in use or not.
	Allocatable int
	// Used are those that pods have. It can be more than Allocatable.
	Used int
	// Free are those that are healthy and nobody's. A plugin that is away has
	// none.
	Free int
	// Away reports that the plugin has gone, or not come, or not yet listed any,
	// and that pods may have to wait for it.
	Away bool
}

// Capacity counts the devices of every resource that is known. Those whose plugin
// has been gone for longer than the grace are there with none. A node's status
// shows zero for them, as the kubelet's does. The map is the caller's.
func (m *Manager) Capacity() map[v1.ResourceName]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[v1.ResourceName]Count, len(m.resources))
	for name, r := range m.resources {
		c := Count{Used: len(r.taken), Away: r.lost}
		// For the grace the number stays, so that a plugin's restart does not look
		// to the scheduler like a shrinking node.
		if !m.over(r) {
			c.Capacity = len(r.devices)
		}
		if !r.lost {
			c.Allocatable = healthy(r.devices)
			c.Free = c.Allocatable
			// A device in use that is unhealthy, or no longer listed, is not among
			// those counted as allocatable.
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

// Devices lists the healthy devices of every resource, sorted by ID. The lists are
// shared: do not change them. Resources whose plugin is away are left out: their
// lists are of the past.
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
