package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/wake"
)

// Manager creates, limits and removes the cgroups of a node's pods. Its methods may
// be called from any goroutine; calls for the same pod run one after the other. The
// locks starting and podEntry.lock may be held across calls of the kernel; mu never
// is.
type Manager struct {
	cfg Config
	// met is never nil: without a registerer the metrics are counted and not exported.
	met *metrics
	// tree has the names of the cgroups. It is computed from Config.Root and does not change.
	tree tree
	// sums has its own lock: pods are counted while other pods hold theirs.
	sums    *sums
	percent int64 // percentage of Config.QOSReserved; -1 without one

	tiersOutdated wake.Signal // set when the values of the QoS tiers may be outdated

	starting chan struct{} // a lock for start; a waiting caller can give up
	// started is nil until the node's cgroups are there. It is set once, with
	// starting held, and read without a lock.
	started atomic.Pointer[driver]

	// mu guards the maps below and podEntry.users.
	mu      sync.Mutex
	pods    map[types.UID]*podEntry
	watches map[types.UID][]*watch
	// troubles is keyed by the step of Run that failed: start, enforce or tiers.
	troubles map[string]error // errors by step
}

// podEntry is the state of one pod. Its lock serializes the calls for the pod, so that a resize and
// a Destroy of the same cgroup never interleave; calls for other pods do not wait. lock guards all
// fields except users.
type podEntry struct {
	lock    chan struct{} // capacity 1: holds a token during a call
	users   int           // number of calls that hold lock or wait for it; guarded by Manager.mu
	applied *Resources    // values written to the cgroup last; nil if not known
	// class is the QoS class in whose tier the cgroup was made. It is valid only while applied is
	// set.
	class v1.PodQOSClass
}

// New checks cfg and returns a Manager, which Run starts. It touches neither the
// kernel nor systemd: the first call for a pod, or Run, does. The error names every
// invalid field of cfg.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	percent, _ := cfg.reservePercent() // checked by validate
	return &Manager{
		cfg: cfg, met: met, tree: newTree(cfg.Root), sums: newSums(), percent: percent,
		tiersOutdated: wake.New(),
		starting:      make(chan struct{}, 1),
		pods:          map[types.UID]*podEntry{},
		watches:       map[types.UID][]*watch{},
		troubles:      map[string]error{},
	}, nil
}

// CgroupParent returns the path of the pod's cgroup below the mount points, in the
// form that runtimes expect as a sandbox's parent. It returns "" with
// Config.NoPodCgroups, which leaves the choice to the runtime, and for a UID that
// cannot be part of a name: Ensure returns an error for such a pod.
func (m *Manager) CgroupParent(pod *v1.Pod) string {
	if m.cfg.NoPodCgroups {
		return ""
	}
	n, err := m.nameOf(pod)
	if err != nil {
		return ""
	}
	p, err := m.literal(n)
	if err != nil {
		return ""
	}
	return p
}

// Root returns the path of the cgroup that contains all pods.
func (m *Manager) Root() string {
	p, err := m.literal(m.tree.node)
	if err != nil || m.cfg.NoPodCgroups {
		return m.cfg.Root
	}
	return p
}

// literal returns the path of n in the form of the configured driver. Unlike
// driver.literal it works before the driver exists: CgroupParent and Root must not
// block.
func (m *Manager) literal(n Name) (string, error) {
	if m.cfg.Driver == Systemd {
		return n.Systemd()
	}
	return n.Cgroupfs(), nil
}

// Healthy returns the errors of the last attempts to enforce limits, or nil. It
// does not block: it returns stored errors, which Run keeps current.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, err := range m.troubles {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// trouble stores the outcome of a step of Run for Healthy, and reports whether it differs from
// the stored one. The caller logs only such a difference, so that a failure that repeats does not
// fill the log.
func (m *Manager) trouble(what string, err error) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.troubles[what]
	if err == nil {
		delete(m.troubles, what)
		return before != nil
	}
	m.troubles[what] = err
	return before == nil || before.Error() != err.Error()
}

// start creates the cgroups of the node and of its tiers, once, and returns the
// driver. After a failure the next caller tries again.
func (m *Manager) start(ctx context.Context) (*driver, error) {
	// Nearly every call takes this path, without a lock.
	if d := m.started.Load(); d != nil {
		return d, nil
	}
	// A channel instead of a mutex: a caller whose ctx ends does not wait any
	// longer for another caller that is blocked in the kernel or systemd.
	select {
	case m.starting <- struct{}{}:
		defer func() { <-m.starting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Another caller may have finished while this one waited.
	if d := m.started.Load(); d != nil {
		return d, nil
	}
	d, err := m.newDriver(ctx)
	if err != nil {
		return nil, err
	}
	// The root itself is never made. A missing root is most often a wrong
	// configuration, and making it would hide the mistake.
	root, err := m.literal(parseCgroupfs(m.cfg.Root))
	if err != nil {
		return nil, fmt.Errorf("use root cgroup %s: %w", m.cfg.Root, err)
	}
	err = d.exists(ctx, root)
	if lacks := new(ControllerError); errors.As(err, &lacks) && d.on.version == V2 {
		err = d.enable(ctx, root) // the cgroups above may be able to pass controllers down
	}
	if err != nil {
		return nil, fmt.Errorf("use root cgroup %s: %w", m.cfg.Root, err)
	}
	// Making a tier makes kubepods above it as well.
	for _, n := range []Name{m.tree.tier(v1.PodQOSBurstable), m.tree.tier(v1.PodQOSBestEffort)} {
		if _, err := d.create(ctx, n); err != nil {
			return nil, err
		}
	}
	// Before started is set: otherwise a pod could be counted by its spec first and
	// then by the kernel's older values.
	if err := m.adopt(ctx, d); err != nil {
		return nil, err
	}
	m.started.Store(d)
	// The tiers were made without values; Run gives them theirs.
	m.tiersOutdated.Set()
	return d, nil
}

// newDriver detects the machine's hierarchies and returns a driver for them. It creates no
// cgroup. With cgroup v1 it sends the event CgroupV1, as the kubelet does, or returns
// ErrUnsupported if Config.FailOnV1 is set.
func (m *Manager) newDriver(ctx context.Context) (*driver, error) {
	f := files{Calls: newCalls(callTimeout, m.met), fs: m.cfg.FS}
	on, err := detect(ctx, f, m.cfg.Version)
	if err != nil {
		return nil, err
	}
	m.met.version.Set(float64(on.version))
	if on.version == V1 {
		const text = "cgroup v1 is in maintenance mode; move to cgroup v2"
		if m.cfg.FailOnV1 {
			return nil, fmt.Errorf("%s: %w", text, ErrUnsupported)
		}
		m.cfg.Event(v1.EventTypeWarning, "CgroupV1", text)
		// cpu.stat is in the root cgroup since Linux 5.8; the kubelet warns without it
		// as well.
	} else if _, err := f.read(ctx, path.Join(on.points[0], "cpu.stat")); err != nil {
		m.cfg.Log.Warn("the kernel is older than 5.8 and lacks values of cgroup v2", zap.Error(err))
	}
	// The node's own component is the first that may be made: all before it belong
	// to Config.Root.
	d := &driver{files: f, on: on, page: int64(os.Getpagesize()), root: len(m.tree.node) - 1}
	if m.cfg.Driver == Systemd {
		d.units = m.cfg.Units
	}
	return d, nil
}

// adopt adds existing pods to the tiers' sums, with the values that the kernel has for them,
// until Ensure is called for each of them. Without that, a tier's limits would drop below the
// requests of its running pods after a restart.
func (m *Manager) adopt(ctx context.Context, d *driver) error {
	// A failure here stops the start: tiers that begin with a sum of zero would
	// take CPU time and protected memory from running pods.
	found, err := m.find(ctx, d)
	if err != nil {
		return err
	}
	for uid, p := range found {
		// One unreadable pod must not keep the others from being counted.
		have, err := d.level(ctx, p.Path)
		if err != nil {
			m.cfg.Log.Warn("failed to read cgroup of existing pod", zap.String("cgroup", p.Path), zap.Error(err))
			continue
		}
		// Sums are kept in thousandths of a CPU, to which both versions convert.
		// The conversion of a weight loses precision; the value counts until the
		// pod's spec replaces it.
		shares := have.share
		if d.on.version == V2 {
			shares = sharesOfWeight(shares)
		}
		m.sums.adopt(uid, share{p.Class, milliOfShares(shares), have.min + have.low})
	}
	return nil
}

// hold locks the entry of a pod. The returned function unlocks it.
func (m *Manager) hold(ctx context.Context, uid types.UID) (*podEntry, func(), error) {
	// Registering as a user before waiting keeps the entry in the map. Otherwise
	// the holder could drop the entry, and a third caller would create another one
	// and not wait.
	m.mu.Lock()
	e := m.pods[uid]
	if e == nil {
		e = &podEntry{lock: make(chan struct{}, 1)}
		m.pods[uid] = e
	}
	e.users++
	m.mu.Unlock()
	// An entry with applied set is kept without users: it records the values that
	// were written last.
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e.users--; e.users == 0 && e.applied == nil {
			delete(m.pods, uid)
		}
	}
	// The wait ends with ctx: the call that holds the lock may be blocked in the
	// kernel for ten seconds.
	select {
	case e.lock <- struct{}{}:
		return e, func() { <-e.lock; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, nil, fmt.Errorf("another call for the cgroup of pod %s is still running: %w", uid, ctx.Err())
	}
}

// timed records the duration of an operation, from the call of timed to the call of the function
// that it returns: defer m.timed("create")().
func (m *Manager) timed(operation string) func() {
	start := time.Now()
	return func() { m.met.took(operation, start) }
}
