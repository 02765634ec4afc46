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

// Manager knows the CSI drivers of the node and calls them. Its methods may be
// called from any goroutine.
type Manager struct {
	cfg Config
	met *metrics
	log *zap.Logger
	// flights are the calls about volumes; stop ends their context when Run ends.
	flights flights
	stop    context.CancelFunc
	// Calls into file systems of drivers, and questions to drivers, which may never
	// return: each group bounds the goroutines that are stuck, by path or driver.
	looks   detached.Group[fs.FileInfo]
	devices detached.Group[string]
	usages  detached.Group[volumemgr.Usage]
	asks    detached.Group[struct{}]
	dirty   chan struct{} // the node's objects are to be looked at; capacity 1

	// mu guards the fields below and what drivers hold. It is never held over a call
	// to a driver, a server or the disk, nor over a function of Config.
	mu      sync.Mutex
	drivers map[string]*drivers
	// gone is kept until the node's objects have been written without the driver: a
	// failure of that is tried again.
	gone    map[string]bool // drivers that the node's objects are not to show
	shown   bool            // the node's objects have been right once
	trouble error           // why they are not now
	// inUse is what the node's status shows: a controller detaches none of these. A
	// volume is added before its attachment is waited for, and goes only after it is
	// unstaged.
	inUse    map[v1.UniqueVolumeName]bool
	blocks   map[v1.UniqueVolumeName]string            // names of the devices of block volumes that were asked for
	contexts map[v1.UniqueVolumeName]map[string]string // of what is attached, for publications
	// waits, present and ill are of pods, and go with the tear-down of a volume; the
	// maps by UniqueVolumeName go with its device.
	waits   map[types.UID]map[string]string // what volumes of pods wait for, by volume
	present map[types.UID]map[string]bool   // volumes that are mounted, by pod
	sizes   map[v1.UniqueVolumeName]int64   // that volumes were mounted with or made, in bytes
	grown   map[v1.UniqueVolumeName]int64   // that volumes were made larger to, and their claims say so
	refused map[v1.UniqueVolumeName]bool    // volumes that are not made larger in use
	ill     map[string]string               // messages of volumes in an abnormal condition, by pod and volume
}

// drivers are those that have one name: the newest version last, which is used. The
// list of a name in the map is never empty.
type drivers struct{ list []*driver }

// driver is one that is registered. can and attaches do not change after its
// registration; info does, under Manager.mu.
type driver struct {
	name, endpoint string
	version        version
	client         *client
	can            abilities
	attaches       bool // its controller has to attach volumes, as far as it says; only alone
	info           nodeInfo
	// calls are the holders of the driver and the calls under way. One is added under
	// Manager.mu while the driver is listed, or by a holder, so that Deregister can
	// wait for the rest.
	calls sync.WaitGroup
}

// New checks cfg and returns a Manager at rest. Drivers may register before Run:
// volumes can be made then, and only the node's objects wait for it.
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

// Run keeps the node's objects until ctx ends, ends the calls that are under way, and
// returns nil when they have. Connections to drivers are closed last. It may be
// called once; no driver can register afterwards.
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

// DriverState is how it stands with one driver.
type DriverState struct {
	Name, Endpoint, Version string
	// NodeID is the driver's name of this node, Limit how many volumes it can
	// have here; 0: it does not say.
	NodeID string
	// Limit counts volumes of this driver alone, and only those that are attached.
	Limit int32
}

// Drivers lists those that are registered and used, by name.
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

// Limit is how many volumes of a driver the node can have; 0 if the driver does not
// say, or is not registered.
func (m *Manager) Limit(name string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.drivers[name]; all != nil {
		return all.list[len(all.list)-1].info.limit
	}
	return 0
}

// VolumesInUse are the attached volumes that pods use or are about to, by the names
// of the node's status, in order. A controller does not detach volumes that the
// status shows.
func (m *Manager) VolumesInUse() []v1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.inUse))
}

// use notes that pods use an attached volume, or no longer do. With the end of the
// use, everything that was learnt about this attachment is forgotten: the next one
// may have another context and another size.
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
	// Without the lock, as the callback may ask VolumesInUse.
	if was != is {
		m.cfg.InUse()
	}
}

// Waits returns in one line what the volumes of a pod wait for outside of the node,
// or "".
func (m *Manager) Waits(uid types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, volume := range slices.Sorted(maps.Keys(m.waits[uid])) {
		return fmt.Sprintf("volume %s %s", volume, m.waits[uid][volume])
	}
	return ""
}

// waitsFor notes what a volume of a pod waits for; "" is for nothing. The words are
// those of Waits, for people.
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

// alone stands for the CSIDriver object on a node without a cluster: it allows
// whatever a driver could ask for, since nobody is there to say more.
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

// object is what is known of a driver's volumes. A cluster that cannot be asked is a
// transient error: to guess could mount a volume without its attachment.
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
