package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// errEnded means that the manager's Run has ended.
var errEnded = errors.New("the agent ends")

// Manager keeps the CSI drivers of the node and calls them. Its methods may be
// called from any goroutine.
type Manager struct {
	cfg Config
	met *metrics
	log *zap.Logger
	// flights are the running calls for volumes; stop ends their contexts when Run
	// ends.
	flights flights
	stop    context.CancelFunc
	// Calls into file systems of drivers, and questions to drivers, may never
	// return: each group limits the number of stuck goroutines, by path or driver.
	looks   detached.Group[fs.FileInfo]
	devices detached.Group[string]
	usages  detached.Group[volumemgr.Usage]
	asks    detached.Group[struct{}]
	dirty   chan struct{} // a request to update the node's objects; capacity 1

	// mu guards the fields below and the fields of drivers. It is never held during
	// a call to a driver, a server, the disk, or a function of Config.
	mu      sync.Mutex
	drivers map[string]*drivers
	// gone has the drivers to remove from the node's objects; an entry stays until
	// they were written.
	gone    map[string]bool
	shown   bool  // the node's objects were up to date once
	trouble error // why they are not up to date
	// inUse is the node's status.volumesInUse: a controller does not detach these.
	// A volume is added before the wait for its attachment, and removed after it is
	// unstaged.
	inUse    map[v1.UniqueVolumeName]bool
	blocks   map[v1.UniqueVolumeName]string            // names of the devices of requested block volumes
	contexts map[v1.UniqueVolumeName]map[string]string // publish contexts of attached volumes
	// waits, present and ill are entries of pods, removed at the teardown of a
	// volume; the maps by UniqueVolumeName are cleared with its device.
	waits   map[types.UID]map[string]string // why volumes of pods wait, by volume
	present map[types.UID]map[string]bool   // volumes that are mounted, by pod
	sizes   map[v1.UniqueVolumeName]int64   // size at the mount or creation of volumes, in bytes
	grown   map[v1.UniqueVolumeName]int64   // size to which volumes were expanded, and shown in their claims
	refused map[v1.UniqueVolumeName]bool    // volumes that cannot be expanded in use
	ill     map[string]string               // messages of volumes in an abnormal condition, by pod and volume
}

// drivers are the registered drivers of one name; the last one, of the newest
// version, is used. The list of a name in the map is never empty.
type drivers struct{ list []*driver }

// driver is a registered driver. can and attaches do not change after its
// registration; info does, under Manager.mu.
type driver struct {
	name, endpoint string
	version        version
	client         *client
	can            abilities
	attaches       bool // its controller has to attach volumes; known only without a cluster
	info           nodeInfo
	// calls counts the holders of the driver and the running calls. One is added
	// under Manager.mu while the driver is listed, or by a holder, so that
	// Deregister can wait for the rest.
	calls sync.WaitGroup
}

// New checks cfg and returns a Manager, which Run starts. Drivers may register and
// volumes may be mounted before Run; only the node's objects are not written until
// then.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("csi: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("csi: %w", err)
	}
	m := &Manager{
		cfg: cfg, met: met, log: cfg.Log, dirty: make(chan struct{}, 1),
		looks: detached.Group[fs.FileInfo]{Limit: maxHung}, devices: detached.Group[string]{Limit: maxHung},
		usages: detached.Group[volumemgr.Usage]{Limit: maxHung}, asks: detached.Group[struct{}]{Limit: maxHung},
		drivers: map[string]*drivers{}, gone: map[string]bool{},
		inUse: map[v1.UniqueVolumeName]bool{}, blocks: map[v1.UniqueVolumeName]string{}, contexts: map[v1.UniqueVolumeName]map[string]string{},
		waits: map[types.UID]map[string]string{}, ill: map[string]string{},
		present: map[types.UID]map[string]bool{}, sizes: map[v1.UniqueVolumeName]int64{}, grown: map[v1.UniqueVolumeName]int64{}, refused: map[v1.UniqueVolumeName]bool{},
	}
	m.flights.busy = map[string]*flight{}
	// Not Run's context: calls outlive their callers, and end only after Run has
	// stopped everything that could begin new ones.
	m.flights.base, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// maxHung is how many paths may keep a call waiting; Go ends a program at 10,000
// threads, and a call that hangs in the kernel holds one.
const maxHung = 1000

// Run keeps the node's objects up to date until ctx ends, then ends the running
// calls, waits for them, closes the connections to drivers and returns nil. It may
// be called once; no driver can register afterwards.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { m.keepNode(ctx) })
	wg.Go(func() { m.keepLimits(ctx) })
	<-ctx.Done()
	m.stop()
	wg.Wait()
	m.flights.wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.drivers {
		for _, one := range d.list {
			_ = one.client.close()
		}
	}
	clear(m.drivers)
	return nil
}

// hold returns the driver of that name, which does not lose its connection before
// release is called. Of several versions it is the newest. Without one the error is
// an ErrNoDriver; it does not wait for one. release may be called once.
func (m *Manager) hold(name string) (d *driver, release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.drivers[name]
	if all == nil {
		return nil, nil, fmt.Errorf("waits for driver %s to register: %w", name, ErrNoDriver)
	}
	d = all.list[len(all.list)-1]
	d.calls.Add(1)
	return d, d.calls.Done, nil
}

// DriverState is the state of one driver.
type DriverState struct {
	Name, Endpoint, Version string
	// NodeID is the driver's name of this node.
	NodeID string
	// Limit is the largest number of attached volumes of this driver on the node; 0
	// if the driver has none.
	Limit int32
}

// Drivers returns the drivers in use, sorted by name.
func (m *Manager) Drivers() []DriverState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []DriverState
	for _, name := range slices.Sorted(maps.Keys(m.drivers)) {
		l := m.drivers[name].list
		d := l[len(l)-1]
		out = append(out, DriverState{d.name, d.endpoint, d.version.String(), d.info.id, d.info.limit})
	}
	return out
}

// Limit returns the largest number of volumes of a driver on the node; 0 if the
// driver has none, or is not registered.
func (m *Manager) Limit(name string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.drivers[name]; all != nil {
		return all.list[len(all.list)-1].info.limit
	}
	return 0
}

// VolumesInUse returns the attached volumes that pods use or wait for, sorted, for
// the node's status. A controller does not detach volumes in the status.
func (m *Manager) VolumesInUse() []v1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.inUse))
}

// use records whether pods use an attached volume. When the use ends, everything recorded
// about the attachment is dropped: the next one may have another context and another
// size.
func (m *Manager) use(volume v1.UniqueVolumeName, is bool) {
	m.mu.Lock()
	was := m.inUse[volume]
	if is {
		m.inUse[volume] = true
	} else {
		delete(m.inUse, volume)
		delete(m.blocks, volume)
		delete(m.contexts, volume)
		delete(m.sizes, volume)
		delete(m.grown, volume)
		delete(m.refused, volume)
	}
	m.mu.Unlock()
	// Without the lock, as the callback may call VolumesInUse.
	if was != is {
		m.cfg.InUse()
	}
}

// Waits returns a line about the external events that the volumes of a pod wait
// for, or "".
func (m *Manager) Waits(uid types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, volume := range slices.Sorted(maps.Keys(m.waits[uid])) {
		return fmt.Sprintf("volume %s %s", volume, m.waits[uid][volume])
	}
	return ""
}

// waitsFor stores why a volume of a pod waits; "" for no wait. The text is for
// people.
func (m *Manager) waitsFor(uid types.UID, volume, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if what == "" {
		delete(m.waits[uid], volume)
		if len(m.waits[uid]) == 0 {
			delete(m.waits, uid)
		}
		return
	}
	if m.waits[uid] == nil {
		m.waits[uid] = map[string]string{}
	}
	m.waits[uid][volume] = what
}

// alone returns the CSIDriver object that is used without a cluster: it allows
// everything that a driver could ask for.
func alone(name string, attaches bool) plugins.CSIDriver {
	return plugins.CSIDriver{
		Name: name, AttachRequired: attaches, PodInfoOnMount: true, Persistent: true, Ephemeral: true, FSGroupPolicy: plugins.FSGroupByType,
	}
}

// missing stands for the CSIDriver object that a cluster does not have. Its values
// are the API's defaults; pods' own volumes need an object that allows them.
func missing(name string) plugins.CSIDriver {
	return plugins.CSIDriver{Name: name, AttachRequired: true, Persistent: true, FSGroupPolicy: plugins.FSGroupByType}
}

// object returns the CSIDriver object of a driver. An unreachable cluster is a
// transient error: a guess could mount a volume without its attachment.
func (m *Manager) object(ctx context.Context, name string) (plugins.CSIDriver, error) {
	if m.cfg.Cluster == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		all := m.drivers[name]
		return alone(name, all != nil && all.list[len(all.list)-1].attaches), nil
	}
	o, err := m.cfg.Cluster.Driver(ctx, name)
	if errors.Is(err, plugins.ErrNotFound) {
		return missing(name), nil
	}
	if err != nil {
		return o, transient(fmt.Errorf("CSIDriver %s: %w", name, err))
	}
	return o, nil
}
