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
)

// Manager keeps the cgroups of a node's pods. Its methods may be called from
// any goroutine; those for one pod take turns. The locks starting and
// podEntry.lock may be held across calls of the kernel; mu never is.
type Manager struct {
	cfg Config
	// met is never nil: without a registerer its metrics count unexported.
	met *metrics
	// tree names the cgroups. It follows from Config.Root and does not change.
	tree tree
	// sums has its own lock: pods are counted while other pods hold theirs.
	sums    *sums
	percent int64 // of QOSReserved

	kick chan struct{} // asks Run to look at the tiers; capacity 1

	starting chan struct{} // a lock that can be given up waiting for
	// started is nil until the node's cgroups are there. It is set once, with
	// starting held, and read without a lock.
	started atomic.Pointer[driver]

	// mu guards the maps below and podEntry.users.
	mu      sync.Mutex
	pods    map[types.UID]*podEntry
	watches map[types.UID][]*watch
	// troubles is keyed by the step of Run that failed: start, enforce or tiers.
	troubles map[string]error // what could not be enforced, by what
}

// podEntry is the state of one pod. Its lock keeps calls for the pod in turn,
// so that a resize and a Destroy of the same cgroup never interleave, while
// calls for other pods go on. All fields but users are guarded by lock.
type podEntry struct {
	lock    chan struct{} // capacity 1: holds a token while somebody works on it
	users   int           // who hold it or wait for it; guarded by Manager.mu
	applied *Resources    // what its cgroup was given last; nil if not known
	// class is the tier that the cgroup was made in. It has a meaning only
	// together with applied.
	class v1.PodQOSClass
}

// New checks cfg and returns a Manager at rest. It touches neither the kernel
// nor systemd: the first call for a pod, or Run, does. The error names every
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
	percent, _ := cfg.reservePercent() // it has been checked
	return &Manager{
		cfg: cfg, met: met, tree: newTree(cfg.Root), sums: newSums(), percent: percent,
		kick:     make(chan struct{}, 1),
		starting: make(chan struct{}, 1),
		pods:     map[types.UID]*podEntry{},
		watches:  map[types.UID][]*watch{},
		troubles: map[string]error{},
	}, nil
}

// CgroupParent is the path of the pod's cgroup below the mount points, in the
// form that runtimes want for a sandbox's parent. It is "" if the runtime is to
// choose, or the pod's UID cannot be part of a name; Ensure then says why.
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

// Root is the path of the cgroup that all pods are in.
func (m *Manager) Root() string {
	p, err := m.literal(m.tree.node)
	if err != nil || m.cfg.NoPodCgroups {
		return m.cfg.Root
	}
	return p
}

// literal returns the path of n in the form of the configured driver. Unlike
// driver.literal it works before the driver is there, which CgroupParent and
// Root need: they must not block.
func (m *Manager) literal(n Name) (string, error) {
	if m.cfg.Driver == Systemd {
		return n.Systemd()
	}
	return n.Cgroupfs(), nil
}

// Healthy returns nil, or what could not be enforced when it was tried last. It
// does not look at the kernel itself, and so does not block; Run keeps the
// answer current.
func (m *Manager) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, err := range m.troubles {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// trouble records the outcome of a step of Run for Healthy, and reports whether
// it differs from the one before. A failure that repeats with the same text is
// no news: it would fill the log at every retry.
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

// start makes what pods need to be there, once: the cgroups of the node and of
// its tiers. What fails is tried again by the next caller.
func (m *Manager) start(ctx context.Context) (*driver, error) {
	// Nearly every call takes this path, without a lock.
	if d := m.started.Load(); d != nil {
		return d, nil
	}
	// A channel instead of a mutex: a caller whose ctx ends is not held up by
	// another one that waits for the kernel or systemd.
	select {
	case m.starting <- struct{}{}:
		defer func() { <-m.starting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Another caller may have finished while this one waited for its turn.
	if d := m.started.Load(); d != nil {
		return d, nil
	}
	d, err := m.newDriver(ctx)
	if err != nil {
		return nil, err
	}
	// The root itself is never made: a missing root is most often a wrong
	// configuration, and making it would put pods where nobody looks for them.
	root, err := m.literal(parseCgroupfs(m.cfg.Root))
	if err != nil {
		return nil, fmt.Errorf("root %s: %w", m.cfg.Root, err)
	}
	err = d.exists(ctx, root)
	if lacks := new(ControllerError); errors.As(err, &lacks) && d.on.version == V2 {
		err = d.enable(ctx, root) // those above it may have them to give
	}
	if err != nil {
		return nil, fmt.Errorf("root %s: %w", m.cfg.Root, err)
	}
	// Making a tier makes kubepods above it as well.
	for _, n := range []Name{m.tree.tier(v1.PodQOSBurstable), m.tree.tier(v1.PodQOSBestEffort)} {
		if _, err := d.create(ctx, n); err != nil {
			return nil, err
		}
	}
	// Before started is set, so that no pod is counted by its spec first and by
	// the kernel's older values after.
	if err := m.adopt(ctx, d); err != nil {
		return nil, err
	}
	m.started.Store(d)
	// The tiers were made without values; Run gives them theirs.
	m.poke()
	return d, nil
}

// newDriver looks at the machine's hierarchies and returns a driver for them.
// It makes no cgroup. With cgroup v1 it sends the event CgroupV1, as the
// kubelet does, or returns ErrUnsupported if Config.FailOnV1 is set.
func (m *Manager) newDriver(ctx context.Context) (*driver, error) {
	f := files{calls: newCalls(m.cfg.CallTimeout, m.met), fs: m.cfg.FS}
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

// adopt counts the pods that are there from before by what the kernel has for
// them, until somebody says what they are to have: after a restart no tier is
// to sink below what its pods hold.
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
			m.cfg.Log.Warn("cgroup of a pod from before cannot be read", zap.String("cgroup", p.Path), zap.Error(err))
			continue
		}
		// Sums are kept in thousandths of a CPU, to which both versions convert; the
		// conversion of a weight loses some of the precision, until the pod's spec
		// replaces it.
		shares := have.share
		if d.on.version == V2 {
			shares = sharesOfWeight(shares)
		}
		m.sums.adopt(uid, share{p.Class, milliOfShares(shares), have.min + have.low})
	}
	return nil
}

// poke asks Run to look at the tiers.
func (m *Manager) poke() {
	// The channel holds one request. More than one at a time would make Run do the
	// same round again.
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// hold takes the turn for a pod; the function that it returns gives it back.
func (m *Manager) hold(ctx context.Context, uid types.UID) (*podEntry, func(), error) {
	// Registering as a user before waiting keeps the entry in the map: without it
	// the one who holds it could drop it, and a third caller would make another
	// entry and not wait at all.
	m.mu.Lock()
	e := m.pods[uid]
	if e == nil {
		e = &podEntry{lock: make(chan struct{}, 1)}
		m.pods[uid] = e
	}
	e.users++
	m.mu.Unlock()
	// An entry with applied set outlives its users: it is the record of the values
	// given last.
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if e.users--; e.users == 0 && e.applied == nil {
			delete(m.pods, uid)
		}
	}
	// The wait ends with ctx: the call before may hang in the kernel for as long
	// as Config.CallTimeout.
	select {
	case e.lock <- struct{}{}:
		return e, func() { <-e.lock; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, nil, fmt.Errorf("another call for pod %s goes on: %w", uid, ctx.Err())
	}
}

// timed observes how long an operation took: defer m.timed("create")().
func (m *Manager) timed(operation string) func() {
	start := time.Now()
	return func() { m.met.took(operation, start) }
}
