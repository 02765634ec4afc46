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
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/numa"
)

// Limits of a Manager.
const (
	// grace is how long the capacity of a lost plugin is kept, as in the kubelet. Pods wait that
	// long for the plugin.
	grace = 5 * time.Minute
	// defaultTimeout is the timeout of PreStartContainer in the device plugin API
	// (KubeletPreStartContainerRPCTimeoutInSecs). The kubelet does not limit the other calls.
	defaultTimeout = 30 * time.Second
	// maxResources limits the number of resources, since plugins may register any number of them.
	maxResources = 512
)

// Store stores values durably: one for each pod that has devices, and one with the names of
// resources. checkpoint.Store implements it. Its methods may block. They are called from many
// goroutines, but never concurrently for the same pod's key.
type Store interface {
	// Write must return only once the value is durable.
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or only a damaged one.
	Read(key string) ([]byte, error)
	// Delete removes the value of a key. A missing key is not an error.
	Delete(key string) error
	// Keys returns all keys, in any order. The manager ignores unknown ones.
	Keys() ([]string, error)
}

// Config holds what a Manager needs. Store is required; the zero value of every
// other field means the default named beside it.
type Config struct {
	// SocketDir is the directory of kubelet.sock, at which plugins register, and of the plugins'
	// own sockets. The kubelet uses /var/lib/kubelet/device-plugins. When Run starts, it removes
	// all sockets in SocketDir, so that plugins register again. If it is "", kubelet.sock is not
	// served.
	SocketDir string
	// Store must not be used by another Manager.
	Store Store
	// Machine has the NUMA nodes of the machine. If it is zero, no NUMA nodes are known.
	Machine numa.Machine
	// Claimed reports whether a container gets a resource from elsewhere, such as an extended
	// resource through DRA. It is called without locks. If Claimed is nil, no resource is.
	Claimed func(pod *v1.Pod, container, resource string) bool

	Timeout time.Duration // limit of each call to a plugin, and of the wait for its first list; the default is 30 s

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// withDefaults returns the configuration with every optional field set.
func (c Config) withDefaults() Config {
	if c.Claimed == nil {
		c.Claimed = func(*v1.Pod, string, string) bool { return false }
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns all mistakes, each with the field and its value.
func (c Config) validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("Config.Store is required"))
	}
	if c.SocketDir != "" && !filepath.IsAbs(c.SocketDir) {
		errs = append(errs, fmt.Errorf("Config.SocketDir is %q; want an absolute path", c.SocketDir))
	}
	// Checked here, since listening at a longer path fails with an error that does not name the
	// cause, at each attempt of Run.
	if n := len(filepath.Join(c.SocketDir, socketName)); n > maxSocketPath {
		errs = append(errs, fmt.Errorf("Config.SocketDir is %q; want a path that leaves room for %s within %d bytes", c.SocketDir, socketName, maxSocketPath))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Config.Timeout is %v; want a positive duration", c.Timeout))
	}
	// A zero Machine is allowed; then hints have no nodes.
	if len(c.Machine.Nodes) > 0 {
		if err := c.Machine.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("Config.Machine: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Manager has the devices of plugins and knows which pods have them. It is safe for concurrent
// use. Only methods with a ctx wait for plugins. The lock mu is never held during a call to a
// plugin or the store.
type Manager struct {
	cfg Config
	met *metrics

	// restoring is a lock of its own, since Restore reads the store, which may block.
	restoring sync.Mutex // held by Restore
	restored  bool       // guarded by restoring

	// mu guards the fields from here to shared, except subs and wg; and turns and inexact.
	mu        sync.Mutex
	resources map[string]*resource
	pods      map[types.UID]*record // records are replaced, never modified
	// pending has the pods between reserve and the end of store. A pod has at most one attempt.
	pending map[types.UID]*Admission
	// damaged has the running pods whose records were damaged.
	damaged map[types.UID]*damagedPod
	running map[types.UID]map[string]bool // containers, at the time of Restore
	// lostCalls counts how often a plugin went away during a call for a pod.
	lostCalls map[types.UID]int
	subs      subscription.List[Change]
	ctx       context.Context // set by Run; nil before
	wg        sync.WaitGroup  // counts goroutines of sessions
	serving   error           // why plugins cannot register; nil if they can
	counted   map[string]bool // resources that have a metric of registrations

	shared          bool        // the checkpoint of a kubelet has to be kept up to date
	kubeletOutdated wake.Signal // set while the kubelet's checkpoint may be outdated

	storing chan struct{} // has a value while names are written
	// turns orders the writes and deletions of each pod's record. An entry exists while it is in
	// use.
	turns map[types.UID]*turn
	// inexact has the pods whose record in the store may be wrong because a write or a deletion
	// failed.
	inexact map[types.UID]bool
}

// resource has the devices that plugins offer under one name. Manager.mu guards it. Devices are
// replaced, never modified. A resource is never removed, so that pointers to it remain valid;
// maxResources limits their number.
type resource struct {
	name    string
	devices []Device             // sorted
	taken   map[string]types.UID // the pod that has a device, by device
	// A session may exist while lost is true: then the plugin is being called again.
	session *session // the session of the resource's plugin; nil if there is none
	// lost means that no device can be allocated: the plugin has gone away, has not registered, or
	// has not listed devices yet. lostAt is the time of the loss, and why the reason.
	lost   bool
	lostAt time.Time
	why    string
	expiry *time.Timer // end of the grace period, while lost
}

// New validates cfg and returns a Manager; call Run to start it. New accesses neither disk nor
// sockets. The error names every invalid field.
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
		resources:       map[string]*resource{},
		pods:            map[types.UID]*record{},
		pending:         map[types.UID]*Admission{},
		damaged:         map[types.UID]*damagedPod{},
		running:         map[types.UID]map[string]bool{},
		lostCalls:       map[types.UID]int{},
		subs:            subscription.List[Change]{Merge: merge},
		turns:           map[types.UID]*turn{},
		storing:         make(chan struct{}, 1),
		inexact:         map[types.UID]bool{},
		kubeletOutdated: wake.New(),
	}, nil
}

// Run lets plugins register and watches their devices until ctx ends. It blocks, and returns nil
// once all calls of plugins and of the store have returned. It may be called once, after
// [Manager.Restore].
func (m *Manager) Run(ctx context.Context) error {
	// If the caller did not call Restore, every pod with a record counts as running: it is safe
	// to keep a device too long, but not to allocate it twice.
	if err := m.Restore(nil); err != nil && !errors.Is(err, errRestored) {
		m.cfg.Log.Error("failed to restore device records", zap.Error(err))
	}
	// From here on, Offer accepts plugins and grace periods can end. expire has started no timers
	// before.
	m.mu.Lock()
	m.ctx = ctx
	for _, r := range m.resources {
		if r.lost {
			m.expire(r)
		}
	}
	shared := m.shared
	m.mu.Unlock()
	// Only if a kubelet's checkpoint exists; on other nodes none is written.
	if shared {
		m.wg.Go(func() { m.keepKubeletFile(ctx) })
	}
	if m.cfg.SocketDir != "" {
		m.serve(ctx)
	} else {
		<-ctx.Done()
	}
	m.mu.Lock()
	for _, r := range m.resources {
		// No timer may publish after subscribers are dropped.
		if r.expiry != nil {
			r.expiry.Stop()
		}
	}
	m.mu.Unlock()
	// Subscribers are not notified of the end. The contexts of sessions derive from ctx. Run
	// waits for the sessions, since they use the store and the log.
	m.subs.Drop()
	m.wg.Wait()
	m.subs.Wait()
	return nil
}

// resource returns the resource with a name, and creates it if it is new. Manager.mu is held. why
// is a text for people: why there are no devices yet. A new resource is marked as lost until a
// plugin registers: pods wait up to five minutes (grace) for the plugin.
func (m *Manager) resource(name, why string) *resource {
	r := m.resources[name]
	if r == nil {
		r = &resource{name: name, taken: map[string]types.UID{}, lost: true, lostAt: time.Now(), why: why}
		m.resources[name] = r
		m.expire(r)
	}
	return r
}

// expire starts a timer that notifies the subscribers at the end of a lost resource's grace
// period. Manager.mu is held. At that time, the error for waiting pods changes from NotYetError
// to GoneError, so they have to be admitted again.
func (m *Manager) expire(r *resource) {
	if r.expiry != nil {
		r.expiry.Stop()
	}
	if m.ctx == nil || m.ctx.Err() != nil {
		return // Run will start the timer, or has ended
	}
	r.expiry = time.AfterFunc(grace-time.Since(r.lostAt), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		// The plugin may have come back while the timer waited for the lock.
		if r.lost {
			m.subs.Publish(Change{Resources: []string{r.name}})
		}
	})
}

// over reports whether a lost resource's grace period has ended. Manager.mu is held.
func (m *Manager) over(r *resource) bool { return r.lost && time.Since(r.lostAt) >= grace }

// Count has the numbers of devices of a resource.
type Count struct {
	// Capacity is the number of all devices. It is kept for five minutes after the plugin
	// is lost.
	Capacity int
	// Allocatable is the number of healthy devices, in use or not.
	Allocatable int
	// Used is the number of devices that pods have. It may exceed Allocatable.
	Used int
	// Free is the number of healthy devices that no pod has. It is 0 while the plugin is away.
	Free int
	// Away reports that the plugin was lost, has not registered, or has not listed devices yet.
	// Pods may have to wait.
	Away bool
}

// Capacity returns the counts of every known resource. A resource whose plugin was lost for
// longer than five minutes has zeros. The node's status has to show these zeros, as the kubelet's
// does. The caller may modify the map.
func (m *Manager) Capacity() map[v1.ResourceName]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[v1.ResourceName]Count, len(m.resources))
	for name, r := range m.resources {
		c := Count{Used: len(r.taken), Away: r.lost}
		// During the grace period the number is kept, so that to the scheduler, a restart of the
		// plugin does not look like a shrinking node.
		if !m.over(r) {
			c.Capacity = len(r.devices)
		}
		if !r.lost {
			c.Allocatable = healthy(r.devices)
			c.Free = c.Allocatable
			// A device in use that is unhealthy or no longer listed does not count as
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

// healthy returns the number of healthy devices in a list.
func healthy(list []Device) (n int) {
	for _, d := range list {
		if d.Healthy {
			n++
		}
	}
	return n
}

// Devices returns the healthy devices of every resource, sorted by ID. Resources whose plugin is
// away are omitted, since their lists are outdated. The lists are shared; do not modify them.
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
