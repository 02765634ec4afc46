package gc

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc/internal/hold"
	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/wake"
)

// ContainerRuntime is the part of a container runtime that this package uses. Calls are made
// concurrently and must return when ctx ends. Removing something that is already gone is a
// success.
type ContainerRuntime interface {
	// List lists the sandboxes and the containers of a pod, or of all pods if pod is "". It lists
	// the sandboxes first.
	List(ctx context.Context, pod types.UID) ([]Sandbox, []Container, error)
	// StopContainer stops a container without a grace period.
	StopContainer(ctx context.Context, id string) error
	// RemoveContainer removes a dead container with its logs, including rotated ones.
	RemoveContainer(ctx context.Context, c Container) error
	// RemoveSandbox stops a sandbox and, if that succeeds, removes it.
	RemoveSandbox(ctx context.Context, id string) error
}

// Pods has the states of pods. Its methods may be called from any goroutine.
type Pods interface {
	// Ready reports whether all sources have delivered their pods. Until then, no pod counts as
	// Deleted.
	Ready() bool
	// State returns the state of a pod; an unknown pod is Deleted. It is called often in a pass,
	// so it should be cheap.
	State(uid types.UID) PodState
}

// Events records Kubernetes events of the node.
type Events interface {
	// Event is called during a pass, which waits for it. eventType is always Warning here.
	Event(eventType, reason, message string)
}

// eventWarning is v1.EventTypeWarning, without an import of that large package.
const eventWarning = "Warning"

// reasonContainerGCFailed is the kubelet's event reason for a failed pass.
const reasonContainerGCFailed = "ContainerGCFailed"

// ContainerConfig holds what a [ContainerCollector] needs. Runtime and Pods are required; the zero
// value of every other field means the default named beside it.
type ContainerConfig struct {
	Runtime ContainerRuntime
	Pods    Pods
	Policy  *ContainerPolicy // DefaultContainerPolicy()
	// PodLogsDir has the log directories of pods, <namespace>_<name>_<uid>; ContainerLogsDir has
	// the links to their logs. Both are absolute paths; "" disables the cleanup of the
	// directory.
	PodLogsDir, ContainerLogsDir string
	Events                       Events // if nil, no events are recorded
	// Removed is called after each attempt to remove a container or sandbox of a pod, since earlier
	// observations of the pod are then out of date. If a Hold waits for that
	// removal, Removed is called before the Hold returns. It must not block.
	Removed func(types.UID)

	Log *zap.Logger // if nil, nothing is logged
}

const (
	// containerInterval is the time between passes over all pods. They are rare, since
	// ContainerCollector.Died causes passes over single pods. The kubelet, which has no such call,
	// makes one each minute.
	containerInterval = 5 * time.Minute
	// diedDelay is the time from a call of Died to the pass over that pod. The containers of a pod
	// usually end together: with this delay one pass serves them all.
	diedDelay = time.Second
	// callTimeout limits each call of the Runtime or Store, and each access to the disk. The value
	// is that of the kubelet's runtimeRequestTimeout.
	callTimeout = 2 * time.Minute
	// containerParallel is the number of pods that a pass handles at a time.
	containerParallel = 4
)

// ContainerCollector removes dead containers, unused sandboxes, log directories of pods that
// are gone, and dangling links to logs.
//
//	m, err := gc.NewContainerCollector(gc.ContainerConfig{Runtime: runtime, Pods: pods})
//	if err != nil {
//		return err
//	}
//	go m.Run(ctx)
//	m.Died(uid)                    // a container of that pod ended
//	removed, err := m.Reclaim(ctx) // now, for an eviction manager
//
// It needs a [ContainerRuntime] and [Pods], which reports whether a pod is live, terminated or
// deleted.
//
// Its methods may be called from any goroutine.
//
// # What is kept
//
//   - Running containers, and created containers of active pods.
//   - The newest dead instance of each container of an active pod, however low the limits
//     are: the pod's status needs its state, restart count and logs.
//   - The newest sandbox of a pod that is not gone, every sandbox that is ready, and every
//     sandbox that a container refers to.
//
// Until all sources of pods have reported, every pod counts as active.
//
// # Pods that start
//
// The code that syncs a pod calls [ContainerCollector.Hold], which waits for removals in
// progress. Nothing of the pod is then removed until the hold is released. That matters for a UID
// that comes back (a static pod whose file was removed and restored), and for a plan based on an
// instance that is about to be removed.
//
// # When
//
// A pass over a pod follows a second after [ContainerCollector.Died]. A pass over all pods is
// made every five minutes; the kubelet makes one each minute. The link to the log of a container
// is removed with the container.
//
// # Faults
//
// A container, sandbox or directory that cannot be removed is reported and skipped. Every call
// has a deadline. The pods of a pass are handled in parallel, so a hung call delays no other pod.
// It delays the next pass by two minutes at most.
type ContainerCollector struct {
	cfg             ContainerConfig
	interval, delay time.Duration // containerInterval and diedDelay; less in a test
	policy          ContainerPolicy
	holds           hold.Table[types.UID]
	wake            wake.Signal // set when died has pods
	// disk makes the file system calls, by path: a hung path delays no other.
	disk detached.Queue

	// mu guards the fields below. It is not held across calls of Config's functions.
	mu      sync.Mutex
	died    map[types.UID]bool // pods that need a pass
	skipped map[types.UID]bool // pods that a pass skipped because they were held
}

// NewContainerCollector checks cfg and returns a collector, which Run starts. The error names
// every invalid field. Before Run, only Collect, Reclaim and Sweep remove anything.
func NewContainerCollector(cfg ContainerConfig) (*ContainerCollector, error) {
	m := &ContainerCollector{
		policy: DefaultContainerPolicy(), wake: wake.New(), interval: containerInterval, delay: diedDelay,
		died: map[types.UID]bool{}, skipped: map[types.UID]bool{},
	}
	if cfg.Policy != nil {
		m.policy = *cfg.Policy
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	var errs []error
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("ContainerConfig.Runtime is required"))
	}
	if cfg.Pods == nil {
		errs = append(errs, errors.New("ContainerConfig.Pods is required"))
	}
	// Defaults are set here: a negative value is a mistake.
	errs = append(errs, m.policy.validate())
	// Links to logs have absolute targets, which are compared with PodLogsDir.
	if cfg.PodLogsDir != "" && !filepath.IsAbs(cfg.PodLogsDir) || cfg.ContainerLogsDir != "" && !filepath.IsAbs(cfg.ContainerLogsDir) {
		errs = append(errs, fmt.Errorf("ContainerConfig.PodLogsDir %q and ContainerLogsDir %q: want absolute paths, or none", cfg.PodLogsDir, cfg.ContainerLogsDir))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("containergc: %w", err)
	}
	m.cfg = cfg
	return m, nil
}

// Died reports that a container of a pod, or the pod, has ended. After a second, Run
// makes one pass over all pods reported until then. It does not block, and may be called before
// Run.
func (m *ContainerCollector) Died(uid types.UID) {
	m.mu.Lock()
	m.died[uid] = true
	m.mu.Unlock()
	m.wake.Set()
}

// Hold prevents the removal of anything of a pod until release is called. It first waits for
// removals in progress. A sync of the pod uses it, so that the pod's containers and sandboxes do
// not disappear meanwhile. Hold returns an error only if ctx ends. A pod may be held more than
// once.
func (m *ContainerCollector) Hold(ctx context.Context, uid types.UID) (release func(), err error) {
	h := m.holds.Open()
	// The result of Add is not needed: ContainerConfig.Removed was called for removals, and the
	// caller inspects the pod after Hold.
	if _, err := h.Add(ctx, uid); err != nil {
		h.Release()
		return nil, err
	}
	// Skipped removals are made soon after the release, not only in the next pass over all pods.
	return func() {
		h.Release()
		m.resume(uid)
	}, nil
}

// Run makes a pass over all pods when it starts and every five minutes, and passes over
// single pods after calls of Died. It returns nil when ctx ends. Failures are logged; the failure of a pass
// over all pods is also an event.
func (m *ContainerCollector) Run(ctx context.Context) error {
	tick := time.NewTicker(m.interval)
	defer tick.Stop()
	// For containers that ended while the process was down, Died was not called.
	m.all(ctx)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
			// The first Died sets the time. Later ones do not delay it, even if a pod crashes
			// all the time.
			if due == nil {
				due = time.After(m.delay)
			}
		case <-due:
			due = nil
			m.some(ctx)
		case <-tick.C:
			m.all(ctx)
		}
	}
}

// all makes a pass over all pods and reports its error, unless ctx has ended.
func (m *ContainerCollector) all(ctx context.Context) {
	if _, err := m.Collect(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("failed to collect containers", zap.Error(err))
		if m.cfg.Events != nil {
			m.cfg.Events.Event(eventWarning, reasonContainerGCFailed, err.Error())
		}
	}
}

// some makes a pass over each pod in m.died, and blocks until all passes have ended. It reports no
// failure as an event: if the failure lasts, the next pass over all pods does that.
func (m *ContainerCollector) some(ctx context.Context) {
	m.mu.Lock()
	died := m.died
	// Taken before the pass: a Died during it must lead to another pass.
	m.died = map[types.UID]bool{}
	m.mu.Unlock()
	if m.policy.MaxContainers >= 0 && len(died) > 0 { // a limit over all pods
		m.all(ctx)
		return
	}
	each(died, func(uid types.UID) {
		// Each pod has its own pass, so a hung pod does not keep others open.
		r := m.begin(false)
		defer r.holds.End()
		if err := r.collect(ctx, uid); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("failed to collect containers of pod", zap.String("uid", string(uid)), zap.Error(err))
		}
	})
}
