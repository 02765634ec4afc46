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
	"github.com/nodewright/nodewright/internal/wake"
)

const (
	// defaultTimeout is the kubelet's timeout of a call to a driver.
	defaultTimeout = 45 * time.Second
	// grace is how long pods wait for a missing driver before they get a GoneError: as long as for
	// device plugins, whose drivers take as long to start.
	// The kubelet has none: it fails at once and tries again.
	grace = 5 * time.Minute
	// maxDrivers limits the driver names that are kept: those of registered drivers, and those
	// that only claims have named.
	maxDrivers = 256
	// maxInstances limits the instances of one driver; during an update there are two.
	maxInstances = 16
)

// Store stores values durably, one for each claim. checkpoint.Store implements it.
type Store interface {
	// Write must return only once the value is durable, since the driver is called after it. It
	// may block; only calls for the same claim wait for it.
	Write(key string, value []byte) error
	// Read returns fs.ErrNotExist if there is no value, or only a damaged one.
	Read(key string) ([]byte, error)
	// Delete removes the value of a key. A missing key is not an error.
	Delete(key string) error
	// Keys returns all keys. The manager ignores keys without its own prefix. Only Restore calls
	// Keys.
	Keys() ([]string, error)
}

// Claims looks up ResourceClaims, for example at an API server. The results are shared and not
// modified.
type Claims interface {
	// Claim returns a claim. If the claim does not exist, Claim returns nil or an error. It may
	// call a server, and must return when ctx ends. It is called without locks, once for each
	// claim of a Prepare that is not prepared already.
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// Config holds what a Manager needs. Store and Claims are required; the zero
// value of every other field means the default named beside it.
type Config struct {
	Store  Store
	Claims Claims
	// Boot identifies the boot of the machine, like /proc/sys/kernel/random/boot_id. Claims that
	// were prepared in another boot are prepared again. If Boot is "", claims that no running pod
	// uses are prepared again too.
	Boot string
	// KubeletDir is the root directory of a kubelet that ran on this node or may run again. Its
	// file dra_manager_state is read and, if it exists, kept up to date. If KubeletDir is "",
	// there is no kubelet.
	KubeletDir string

	Timeout time.Duration // limit of each call to a driver, and of the work on the claims of a pod; the default is 45 s

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// withDefaults returns the configuration with its optional fields set, except Boot, KubeletDir
// and Metrics, which may be empty.
func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns all mistakes, each with the field's name, its value and the allowed values.
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
	return errors.Join(errs...)
}

// Manager has the claims that pods of this node use, and the drivers. It is safe for concurrent
// use.
type Manager struct {
	cfg Config
	met *metrics

	// mu guards the maps, ctx, and the fields of claims and drivers. It is never held during a
	// call to a driver, an access to the store, or a look-up of a claim.
	mu     sync.Mutex
	claims map[types.UID]*claim
	// byName has one claim for each name; the field claims has all claims. After a restart, a
	// name can have two claims, if one was deleted by force and created again. Once one of them
	// is unprepared, it has one again.
	byName  map[string]*claim             // by namespace/name
	byPod   map[types.UID]map[*claim]bool // the claims that a pod uses
	alive   map[types.UID]bool            // pods with running containers at Restore that have not ended
	turns   map[types.UID]*turn           // pods for which a Prepare or an Unprepare runs
	reaping map[types.UID]*reaper         // pods that do not exist any more and whose claims are being unprepared
	drivers map[string]*driver
	subs    subscription.List[Change]
	// ready is closed once ctx is set. Registrations fail before that.
	ready chan struct{}
	ctx   context.Context // context of Run; nil before Run is called
	wg    sync.WaitGroup  // counts goroutines of calls and sessions

	// The fields below are used by Restore and at the start of Run. restoring is locked before mu,
	// never after it.
	restoring sync.Mutex  // held by Restore
	restored  bool        // guarded by restoring
	blind     bool        // the running containers are unknown; set by Restore before it reads records
	unread    []types.UID // claims with an unreadable record; used by Restore, then by Run

	// shared means that a kubelet's file has to be kept up to date.
	// kubeletOutdated is set while the file may be outdated.
	shared          bool
	kubeletOutdated wake.Signal
}

// New validates cfg and returns a Manager; call Run to start it.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("dra: %w", err)
	}
	m := &Manager{
		cfg:             cfg,
		claims:          map[types.UID]*claim{},
		byName:          map[string]*claim{},
		byPod:           map[types.UID]map[*claim]bool{},
		alive:           map[types.UID]bool{},
		turns:           map[types.UID]*turn{},
		reaping:         map[types.UID]*reaper{},
		drivers:         map[string]*driver{},
		subs:            subscription.List[Change]{Merge: merge},
		ready:           make(chan struct{}),
		kubeletOutdated: wake.New(),
	}
	var err error
	if m.met, err = newMetrics(cfg.Metrics, m.inUse); err != nil {
		return nil, fmt.Errorf("dra: %w", err)
	}
	return m, nil
}

// Run lets drivers register and calls them until ctx ends; it returns nil once all calls have
// returned. It may be called once, after [Manager.Restore].
func (m *Manager) Run(ctx context.Context) error {
	// If the caller did not call Restore, every container may be running, and every record counts
	// as used.
	if err := m.Restore(nil); err != nil && !errors.Is(err, errRestored) {
		m.cfg.Log.Error("failed to restore claims", zap.Error(err))
	}
	m.mu.Lock()
	m.ctx = ctx
	// A record that could not be read must not prevent drivers from registering.
	_ = m.start(m.reread)
	m.mu.Unlock()
	close(m.ready)
	// One goroutine writes the kubelet's file, so that a slow disk does not delay pods, and an
	// older state never replaces a newer one.
	over, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		m.keepKubeletFile(over)
	}()
	<-ctx.Done()
	// From here on, subscribers get no changes: drivers that disconnect because Run ends are not
	// lost.
	m.subs.Drop()
	m.wg.Wait()
	m.subs.Wait()
	close(over) // no driver is called from here on
	<-told
	return nil
}

// Ready returns a channel that is closed when drivers can register.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// start runs fn, with Run's ctx, on a goroutine that Run waits for. Before Run and
// after the end of its context it returns ErrNotRunning. Manager.mu is held.
func (m *Manager) start(fn func(ctx context.Context)) error {
	// Checked under the lock that guards ctx, so that no goroutine is added once Run's context
	// has ended: wg.Wait in Run would miss it.
	if m.ctx == nil || m.ctx.Err() != nil {
		return ErrNotRunning
	}
	ctx := m.ctx
	m.wg.Go(func() { fn(ctx) })
	return nil
}

// turn is a lock on a pod for one Prepare or Unprepare at a time. Otherwise both could add and
// remove the pod's references to claims in any order.
type turn struct {
	free chan struct{} // has a value while no call holds the lock
	// users counts the callers that hold the lock or wait for it. The last one removes it from
	// Manager.turns. Guarded by Manager.mu.
	users int
}

// enter waits until no other Prepare or Unprepare of the pod runs, or ctx ends. leave lets the next
// one run. The lock is a channel, so that a caller does not wait for a hung driver beyond its
// context.
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
		// The turn is released before it is removed, so that a caller of enter in between uses
		// this turn and does not create a second one.
		return func() { t.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}
