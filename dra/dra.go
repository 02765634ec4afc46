package dra

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/subscription"
)

const (
	// defaultTimeout is the kubelet's for each call to a driver.
	defaultTimeout = 45 * time.Second
	// defaultGrace is that of device plugins, whose drivers take as long to start.
	// The kubelet has none: it fails at once and tries again.
	defaultGrace = 5 * time.Minute
	// maxDrivers limits the stored driver names: those of registered drivers, and
	// those that claims name without a registration.
	maxDrivers = 256
	// maxInstances limits the instances of one driver: an update has two.
	maxInstances = 16
)

// Store stores values durably, one for each claim. checkpoint.Store implements it.
type Store interface {
	// Write returns once the value is durable: only then a driver is called. It may
	// block; only calls for the same claim wait for it.
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or only a damaged one.
	Read(key string) ([]byte, error)
	// Delete removes the value of a key; a missing key is a success.
	Delete(key string) error
	// Keys returns all keys. The manager uses those with its own prefix. Only
	// Restore calls it.
	Keys() ([]string, error)
}

// Claims looks up ResourceClaims, for example at an API server. The results are
// shared and not changed.
type Claims interface {
	// Claim returns a claim. It may call a server, and returns when ctx ends. For a
	// claim that does not exist it returns nil or an error. It is called without
	// locks, once for each claim of a Prepare that is not prepared already.
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Config holds what a Manager needs. Store and Claims are required; the zero
// value of every other field means the default named beside it.
type Config struct {
	Store  Store
	Claims Claims
	// Boot identifies the boot of the machine, as /proc/sys/kernel/random/boot_id
	// does: claims prepared in another boot are prepared again. Without it, claims
	// that no running pod uses are prepared again too.
	Boot string
	// KubeletDir is the root directory of a kubelet that ran on this node or may
	// run again: its dra_manager_state is read and, if it exists, kept up to date.
	// "": none.
	KubeletDir string

	Timeout time.Duration // of each call to a driver, and for the claims of a pod; 45s
	Grace   time.Duration // how long pods wait for a driver that is away before they get a GoneError; 5m

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults returns the configuration with its optional fields set, but Boot,
// KubeletDir and Metrics, which may be absent.
func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns every fault, with the field's name, its value and the allowed
// values.
func (c Config) validate() error {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("Config.Store is required"))
	}
	if c.Claims == nil {
		errs = append(errs, errors.New("Config.Claims is required"))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Config.Timeout is %v; want a positive duration", c.Timeout))
	}
	if c.Grace < 0 {
		errs = append(errs, fmt.Errorf("Config.Grace is %v; want a positive duration", c.Grace))
	}
	return errors.Join(errs...)
}

// Manager keeps the claims that pods of this node use, and the drivers. Its methods
// may be called from any goroutine.
type Manager struct {
	cfg Config
	met *metrics

	// mu guards the maps and ctx, and the fields of claims and drivers. It is never
	// held during a call to a driver, an access of the store, or a look-up of a
	// claim.
	mu     sync.Mutex
	claims map[types.UID]*claim
	// byName has one claim for each name; claims has all. After a restart a name
	// can have two claims, if one was deleted by force and created again, until one
	// of them is unprepared.
	byName  map[string]*claim             // by namespace/name
	byPod   map[types.UID]map[*claim]bool // the claims that a pod uses
	alive   map[types.UID]bool            // pods with running containers at Restore that have not ended
	turns   map[types.UID]*turn           // pods that are being prepared or unprepared
	reaping map[types.UID]*reaper         // pods that are gone
	drivers map[string]*driver
	subs    subscription.List[Change]
	// ready is closed once ctx is set: registrations fail before that.
	ready chan struct{}
	ctx   context.Context // Run's; nil before
	wg    sync.WaitGroup  // of calls and sessions

	// The fields for the start. restoring is locked before mu, never after it.
	restoring sync.Mutex  // held by Restore
	restored  bool        // guarded by restoring
	blind     bool        // every container may run; set by Restore before it reads records
	unread    []types.UID // claims whose record could not be read; used by Restore, then by Run

	// shared means that a kubelet's file has to be kept up to date; told has a
	// token while the file is out of date.
	shared bool
	told   chan struct{}
}

// New checks cfg and returns a Manager, which Run starts.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("dra: %w", err)
	}
	m := &Manager{
		cfg:     cfg,
		claims:  map[types.UID]*claim{},
		byName:  map[string]*claim{},
		byPod:   map[types.UID]map[*claim]bool{},
		alive:   map[types.UID]bool{},
		turns:   map[types.UID]*turn{},
		reaping: map[types.UID]*reaper{},
		drivers: map[string]*driver{},
		subs:    subscription.List[Change]{Merge: merge},
		ready:   make(chan struct{}),
		told:    make(chan struct{}, 1),
	}
	var err error
	if m.met, err = newMetrics(cfg.Metrics, m.inUse); err != nil {
		return nil, fmt.Errorf("dra: %w", err)
	}
	return m, nil
}

// Run lets drivers register and be called until ctx ends; it returns nil once all
// calls have returned. It may be called once, after [Manager.Restore].
func (m *Manager) Run(ctx context.Context) error {
	// If the caller did not call Restore, every container may run, and every record
	// counts as used.
	if err := m.Restore(nil); err != nil && !errors.Is(err, errRestored) {
		m.cfg.Log.Error("failed to restore claims", zap.Error(err))
	}
	m.mu.Lock()
	m.ctx = ctx
	// A record that could not be read does not keep drivers from registering.
	_ = m.start(m.reread)
	m.mu.Unlock()
	close(m.ready)
	// The kubelet's file is written by one goroutine, so that a slow disk does not
	// hold up pods, and an older state never replaces a newer one.
	over, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		m.keepTold(over)
	}()
	<-ctx.Done()
	// Subscribers get no changes from here on: drivers that disconnect because of
	// the end are not lost.
	m.subs.Drop()
	m.wg.Wait()
	m.subs.Wait()
	close(over) // no driver is called any more
	<-told
	return nil
}

// Ready returns a channel that is closed when drivers can register.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// start runs fn, with Run's ctx, on a goroutine that Run waits for. Before Run and
// after the end of its context it returns ErrNotRunning. Manager.mu is held.
func (m *Manager) start(fn func(ctx context.Context)) error {
	// Checked under the lock that Run sets ctx with. No goroutine is added to wg once
	// Run's context has ended, so that wg.Wait in Run cannot miss one.
	if m.ctx == nil || m.ctx.Err() != nil {
		return ErrNotRunning
	}
	ctx := m.ctx
	m.wg.Go(func() { fn(ctx) })
	return nil
}

// turn serializes the calls for a pod: a Prepare and an Unprepare of the same pod
// would otherwise add and drop its references in any order.
type turn struct {
	free chan struct{} // has a value while the turn is free
	// users are the holder of the turn and those who wait for it; with the last of
	// them the record goes. Guarded by Manager.mu.
	users int
}

// enter waits for a pod's turn until ctx ends, and returns a function that ends it.
// The turn is a channel and not a mutex, so that a caller does not wait for a
// hanging driver beyond its context.
func (m *Manager) enter(ctx context.Context, uid types.UID) (leave func(), err error) {
	m.mu.Lock()
	t := m.turns[uid]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		m.turns[uid] = t
	}
	t.users++
	m.mu.Unlock()
	forget := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(m.turns, uid)
		}
	}
	select {
	case <-t.free:
		// The turn is freed before it is removed: a caller of enter in between
		// finds this turn, and not a second one for the same pod.
		return func() { t.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
