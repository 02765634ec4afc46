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
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// errEnded means that the manager's Run has ended.
var errEnded = errors.New("the agent is stopping")

// Manager has the CSI drivers of the node and calls them. It is safe for concurrent use.
type Manager struct {
	cfg Config
	met *metrics
	log *zap.Logger
	// flights are the running calls for volumes. stop cancels their contexts when Run ends.
	flights flights
	stop    context.CancelFunc
	// looks and the groups after it make calls into drivers' file systems and queries to drivers,
	// which may never return. For each path or driver a group runs one call at a time, so that few
	// goroutines hang.
	looks   detached.Group[fs.FileInfo]
	devices detached.Group[string]
	usages  detached.Group[volumemgr.Usage]
	asks    detached.Group[struct{}]
	dirty   wake.Signal // a request to update the node's objects

	// mu guards the fields below and the fields of drivers. It is never held during a call to a
	// driver, a server, the disk, or a function of Config.
	mu      sync.Mutex
	drivers map[string]*drivers
	// gone has the drivers to remove from the node's objects. An entry is deleted once the objects
	// were written.
	gone    map[string]bool
	shown   bool  // the node's objects have been written once
	trouble error // error of the last write of the node's objects
	// inUse becomes the node's status.volumesInUse; a controller does not detach these volumes. A
	// volume is added before the wait for its attachment, and removed after it is unstaged.
	inUse    map[v1.UniqueVolumeName]bool
	blocks   map[v1.UniqueVolumeName]string            // names of the devices of requested block volumes
	contexts map[v1.UniqueVolumeName]map[string]string // publish contexts of attached volumes
	// waits, present and ill have entries for pods. The entries are removed when a volume is torn
	// down. The entries of maps by UniqueVolumeName are removed with the volume's device.
	waits   map[types.UID]map[string]string // why volumes of pods wait, by volume
	present map[types.UID]map[string]bool   // mounted volumes, by pod
	sizes   map[v1.UniqueVolumeName]int64   // size at the mount or creation of volumes, in bytes
	grown   map[v1.UniqueVolumeName]int64   // size to which volumes were expanded and that their claims show
	refused map[v1.UniqueVolumeName]bool    // volumes that the driver cannot expand in use
	ill     map[string]string               // health messages of abnormal volumes, by pod and volume
}

// drivers are the registered drivers with one name. The last one has the newest version and is
// used. In the map, a list is never empty.
type drivers struct{ list []*driver }

// driver is a registered driver. can and attaches do not change after the registration;
// Manager.mu guards info.
type driver struct {
	name, endpoint string
	version        version
	client         *client
	can            abilities
	attaches       bool // the driver's controller has to attach volumes; set only without a cluster
	info           nodeInfo
	// calls counts the holders of the driver and the running calls, so that Deregister can wait
	// for them. It is increased under Manager.mu while the driver is listed, or by a holder.
	calls sync.WaitGroup
}

// New validates cfg and returns a Manager; call Run to start it. Before that, drivers may
// register and volumes may be mounted, but the node's objects are not written.
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
		cfg: cfg, met: met, log: cfg.Log, dirty: wake.New(),
		looks: detached.Group[fs.FileInfo]{Limit: maxHung}, devices: detached.Group[string]{Limit: maxHung},
		usages: detached.Group[volumemgr.Usage]{Limit: maxHung}, asks: detached.Group[struct{}]{Limit: maxHung},
		drivers: map[string]*drivers{}, gone: map[string]bool{},
		inUse: map[v1.UniqueVolumeName]bool{}, blocks: map[v1.UniqueVolumeName]string{}, contexts: map[v1.UniqueVolumeName]map[string]string{},
		waits: map[types.UID]map[string]string{}, ill: map[string]string{},
		present: map[types.UID]map[string]bool{}, sizes: map[v1.UniqueVolumeName]int64{}, grown: map[v1.UniqueVolumeName]int64{}, refused: map[v1.UniqueVolumeName]bool{},
	}
	m.flights.busy = map[string]*flight{}
	// Not derived from Run's context: calls may outlive their callers, and Run cancels them only
	// after it has stopped everything that could start new ones.
	m.flights.base, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// maxHung limits the number of paths with hung calls. A call that hangs in the kernel occupies a
// thread, and a Go program ends at 10,000 threads.
const maxHung = 1000

// Run keeps the node's objects up to date until ctx ends. Then it cancels the running calls,
// waits for them, closes the connections to drivers and returns nil. It may be called once. After
// it, no driver can register.
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

// hold returns the newest registered driver with a name. The driver's connection stays open until
// release is called; release may be called once. If there is no driver, the error is an
// ErrNoDriver. hold does not wait.
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

// DriverState says how a registered driver can be reached, and what it said about this node.
type DriverState struct {
	Name, Endpoint, Version string
	// NodeID is the driver's ID for this node.
	NodeID string
	// Limit is the maximum number of attached volumes of this driver on the node. 0 means no
	// limit.
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

// Limit returns the maximum number of volumes of a driver on the node. It returns 0 if there is
// no limit, or no such driver.
func (m *Manager) Limit(name string) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.drivers[name]; all != nil {
		return all.list[len(all.list)-1].info.limit
	}
	return 0
}

// VolumesInUse returns the attached volumes that pods use or wait for, sorted, for the node's
// status. A controller does not detach these volumes.
func (m *Manager) VolumesInUse() []v1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.inUse))
}

// use records that pods use an attached volume or, if used is false, that no pod uses it any
// more. When the use ends, everything that is known about the attachment is dropped, since the
// next attachment may have another context and another size.
func (m *Manager) use(volume v1.UniqueVolumeName, used bool) {
	m.mu.Lock()
	was := m.inUse[volume]
	if used {
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
	// Called without the lock, since InUse may call VolumesInUse.
	if was != used {
		m.cfg.InUse()
	}
}

// Waits returns one line that says what the volumes of a pod wait for outside this package, such
// as an attachment. It returns "" if they do not wait.
func (m *Manager) Waits(uid types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, volume := range slices.Sorted(maps.Keys(m.waits[uid])) {
		return fmt.Sprintf("volume %s %s", volume, m.waits[uid][volume])
	}
	return ""
}

// waitsFor records why a volume of a pod waits. reason is a text for people; "" ends the wait.
func (m *Manager) waitsFor(uid types.UID, volume, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if reason == "" {
		delete(m.waits[uid], volume)
		if len(m.waits[uid]) == 0 {
			delete(m.waits, uid)
		}
		return
	}
	if m.waits[uid] == nil {
		m.waits[uid] = map[string]string{}
	}
	m.waits[uid][volume] = reason
}

// alone returns a CSIDriver object for use without a cluster. It allows everything that a driver
// may need.
func alone(name string, attaches bool) plugins.CSIDriver {
	return plugins.CSIDriver{
		Name: name, AttachRequired: attaches, PodInfoOnMount: true, Persistent: true, Ephemeral: true, FSGroupPolicy: plugins.FSGroupByType,
	}
}

// missing returns a CSIDriver object for a driver that has none in the cluster. It has the API's
// defaults, which do not allow inline volumes.
func missing(name string) plugins.CSIDriver {
	return plugins.CSIDriver{Name: name, AttachRequired: true, Persistent: true, FSGroupPolicy: plugins.FSGroupByType}
}

// object returns the CSIDriver object of a driver. If the cluster cannot be reached, the error is
// transient: with a guess, a volume could be mounted without its attachment.
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
		return o, transient(fmt.Errorf("read CSIDriver %s: %w", name, err))
	}
	return o, nil
}
