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
	// defaultGrace is that of device plugins, whose drivers take as long to
	// come up. The kubelet has none: it fails at once and tries again.
	defaultGrace = 5 * time.Minute
	// maxDrivers bounds the names that are remembered: those of registered drivers,
	// and those that claims name and nobody has registered.
	maxDrivers = 256
	// maxInstances bounds those of one driver: an update has two.
	maxInstances = 16
)

// Store keeps values over a crash, one for each claim. A checkpoint.Store is one.
type Store interface {
	// Write returns once the value would survive a crash: a driver is called only
	// after that. It may block: only calls about the same claim wait for it.
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or none that is whole.
	Read(key string) ([]byte, error)
	// Delete of a key without a value is no error.
	Delete(key string) error
	// Keys lists all values, those of others too: the manager takes the ones with its
	// own prefix. Restore calls it.
	Keys() ([]string, error)
}

// Claims looks up ResourceClaims, of an API server or of wherever they are. What
// it returns is shared and not changed.
type Claims interface {
	// Claim may ask a server, and ends when ctx does. A claim that does not exist is
	// an error or nil. It is called without locks, once for each claim of a Prepare
	// that finds something missing.
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Config holds what a Manager needs. Store and Claims are required; the zero
// value of every other field means the default named beside it.
type Config struct {
	Store  Store
	Claims Claims
	// Boot names the boot of the machine, as /proc/sys/kernel/random/boot_id
	// does: what was prepared before another one is prepared again. Without it,
	// so is what no running pod uses.
	Boot string
	// KubeletDir is the root directory of a kubelet that this node had or may have
	// again: its dra_manager_state is read, and kept up to date where it is there.
	// "": none.
	KubeletDir string

	Timeout time.Duration // of each call to a driver, and for the claims of a pod; 45s
	Grace   time.Duration // that a driver may be away before pods are told that it is gone; 5m

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// withDefaults returns the configuration with its optional fields set. Boot,
// KubeletDir and Metrics stay as they are, as their absence has a meaning.
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

// validate reports every mistake at once, by the field's name, its value and the
// wanted values.
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

// Manager knows the claims that pods of this node use, and the drivers. Its
// methods may be called from any goroutine.
type Manager struct {
	cfg Config
	met *metrics

	// mu guards the maps and ctx, and what claims and drivers hold. It is never held
	// over a call to a driver, a read or a write of the store, or a look-up of a
	// claim.
	mu     sync.Mutex
	claims map[types.UID]*claim
	// byName has one claim of a name, claims has all: after a restart, a claim that
	// was deleted by force and made again can be there twice, until one of the two is
	// unprepared.
	byName  map[string]*claim             // by namespace/name
	byPod   map[types.UID]map[*claim]bool // that a pod uses
	alive   map[types.UID]bool            // pods of which something ran at Restore, and that have not ended
	turns   map[types.UID]*turn           // pods that are being prepared or undone
	reaping map[types.UID]*reaper         // pods that are gone
	drivers map[string]*driver
	subs    subscription.List[Change]
	// ready is closed once ctx is set, as registrations before that fail.
	ready chan struct{}
	ctx   context.Context // Run's; nil before
	wg    sync.WaitGroup  // of calls and sessions

	// The fields for the start. restoring is taken before mu, never after it.
	restoring sync.Mutex  // held by Restore
	restored  bool        // guarded by restoring
	blind     bool        // everything may run; set by Restore, before any record is read
	unread    []types.UID // claims whose record the disk did not give; Restore's, then Run's

	// shared means that there is a kubelet's file to be kept up to date, and told has
	// a token while that may not say what is so.
	shared bool
	told   chan struct{}
}

// New checks cfg and returns a Manager at rest.
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

// Run lets drivers register and be called until ctx ends; it returns nil when no
// call is under way any more. It may be called once, after [Manager.Restore].
func (m *Manager) Run(ctx context.Context) error {
	// For a caller that did not call Restore: as nobody has said which containers
	// run, all of them may, and every record counts as used.
	if err := m.Restore(nil); err != nil && !errors.Is(err, errRestored) {
		m.cfg.Log.Error("claims of before the restart are not known", zap.Error(err))
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
	// Subscribers hear of nothing that happens from here on: plugins that go because
	// of the end are not lost.
	m.subs.Drop()
	m.wg.Wait()
	m.subs.Wait()
	close(over) // no driver is called any more
	<-told
	return nil
}

// Ready is closed when Run works: drivers can register.
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

// turn lets one at a time do something for a pod: a Prepare and an Unprepare of the
// same pod would otherwise add and drop its references in any order.
type turn struct {
	free chan struct{} // has a value while nobody has the turn
	// users are the holder of the turn and those who wait for it; with the last of
	// them the record goes. Guarded by Manager.mu.
	users int
}

// enter waits for a pod's turn, for as long as ctx allows, and returns how to end it.
// The turn is a channel and not a mutex so that a caller whose context ends is not
// stuck behind a driver that hangs.
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
		// The turn is given back before it is forgotten: whoever enters in between
		// still finds this turn, and not a second one for the same pod.
		return func() { t.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
