package gc

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc/internal/hold"
	"github.com/nodewright/nodewright/internal/detached"
)

// ContainerRuntime is what this package asks of a container runtime. Calls are made
// concurrently and end with ctx; what is gone already is no error.
type ContainerRuntime interface {
	// List lists the sandboxes, and after them the containers, of a pod, or
	// with "" of all pods.
	List(ctx context.Context, pod types.UID) ([]Sandbox, []Container, error)
	// StopContainer ends a container at once.
	StopContainer(ctx context.Context, id string) error
	// RemoveContainer removes a dead container with its logs, the rotated
	// ones too, and the link to them.
	RemoveContainer(ctx context.Context, c Container) error
	// RemoveSandbox stops a sandbox and, if that succeeds, removes it.
	RemoveSandbox(ctx context.Context, id string) error
}

// Pods has the states of pods. Its methods may be called from any goroutine.
type Pods interface {
	// Ready reports whether all sources have delivered their pods. Before that, no pod
	// counts as Deleted.
	Ready() bool
	// State returns the state of a pod; Deleted for an unknown one. It is called often
	// in a pass, so it should be cheap.
	State(uid types.UID) PodState
}

// Events records Kubernetes events of the node.
type Events interface {
	// Event is called during a pass, which waits for it. eventType is always Warning here.
	Event(eventType, reason, message string)
}

// eventWarning is v1.EventTypeWarning: package v1 of Kubernetes weighs more than all of this one.
const eventWarning = "Warning"

// reasonContainerGCFailed is the kubelet's event for a pass that failed.
const reasonContainerGCFailed = "ContainerGCFailed"

// ContainerConfig holds what a [ContainerCollector] needs. Runtime and Pods are required; the zero
// value of every other field means the default named beside it.
type ContainerConfig struct {
	Runtime ContainerRuntime
	Pods    Pods
	Policy  *ContainerPolicy // DefaultContainerPolicy()
	// PodLogsDir has the log directories of pods, <namespace>_<name>_<uid>, and
	// ContainerLogsDir the links to their logs. They are absolute paths; with "" the
	// collector does not touch them.
	PodLogsDir, ContainerLogsDir string
	Events                       Events // nil records none
	// Removed is called after the removal of a container or sandbox of a pod, or a try
	// of it: earlier observations of the pod are out of date. It is called before a
	// Hold that waits for the removal returns. It must not block.
	Removed func(types.UID)

	Interval time.Duration // between passes over all pods; 5m
	Delay    time.Duration // from Died to a pass over that pod; 1s
	Timeout  time.Duration // of each call of the Runtime, and of each look at the disk; 2m
	Parallel int           // pods that are worked on at a time; 4

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

const (
	// The kubelet's period is a minute, but it has no other occasions.
	defaultContainerInterval = 5 * time.Minute
	// The containers of a pod mostly end together: one look is enough for them.
	defaultDelay = time.Second
	// As long as the kubelet's runtimeRequestTimeout.
	defaultContainerTimeout  = 2 * time.Minute
	defaultContainerParallel = 4
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
// It needs a [ContainerRuntime] and [Pods], which reports whether a
// pod is active, has ended, or is gone. decideContainers and decideSandboxes are the pure
// decisions.
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
// The code that syncs a pod holds it: [ContainerCollector.Hold] waits for removals in progress, and
// nothing of the pod is removed until it is released. That matters for a UID that comes back
// (a static pod whose file was removed and restored), and for a plan based on an instance
// that is about to be removed.
//
// # When
//
// A second after [ContainerCollector.Died] for the pod it names, and every five minutes for
// all: the kubelet looks at all of them each minute. The link to the log of a
// container goes with the container.
//
// # Faults
//
// A container, sandbox or directory that cannot be removed is reported and skipped. Every
// call has a deadline. The pods of a pass are handled in parallel, so a hung call delays no
// other pod, and the next pass by ContainerConfig.Timeout at most.
type ContainerCollector struct {
	cfg    ContainerConfig
	policy ContainerPolicy
	met    *containerMetrics
	holds  hold.Table[types.UID]
	// wake has Run see that died has pods; its buffer holds one, and Died never waits.
	wake chan struct{}
	// disk has the calls into file systems, by path: a path that hangs holds up no other.
	disk detached.Queue

	// mu guards the fields below. It is not held across calls of Config's functions.
	mu      sync.Mutex
	died    map[types.UID]bool // to be looked at
	skipped map[types.UID]bool // for being held
}

// NewContainerCollector checks cfg and returns a Manager at rest. The error names every field that is wrong.
// Until Run is called nothing is removed but by Collect, Reclaim and Sweep.
func NewContainerCollector(cfg ContainerConfig) (*ContainerCollector, error) {
	m := &ContainerCollector{
		policy: DefaultContainerPolicy(), wake: make(chan struct{}, 1),
		died: map[types.UID]bool{}, skipped: map[types.UID]bool{},
	}
	if cfg.Policy != nil {
		m.policy = *cfg.Policy
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&cfg.Interval, defaultContainerInterval}, {&cfg.Delay, defaultDelay}, {&cfg.Timeout, defaultContainerTimeout}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = defaultContainerParallel
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
	// Defaults are in place here: what is below 0 was set so.
	errs = append(errs, m.policy.validate())
	if cfg.Interval < 0 || cfg.Delay < 0 || cfg.Timeout < 0 || cfg.Parallel < 0 {
		errs = append(errs, fmt.Errorf("ContainerConfig.Interval %v, Delay %v, Timeout %v and Parallel %d: want 0 (the default) or more",
			cfg.Interval, cfg.Delay, cfg.Timeout, cfg.Parallel))
	}
	// Links to logs have absolute targets, which are compared with PodLogsDir.
	if cfg.PodLogsDir != "" && !filepath.IsAbs(cfg.PodLogsDir) || cfg.ContainerLogsDir != "" && !filepath.IsAbs(cfg.ContainerLogsDir) {
		errs = append(errs, fmt.Errorf("ContainerConfig.PodLogsDir %q and ContainerLogsDir %q: want absolute paths, or none", cfg.PodLogsDir, cfg.ContainerLogsDir))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("containergc: %w", err)
	}
	met, err := newContainerMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("containergc: %w", err)
	}
	m.cfg, m.met = cfg, met
	return m, nil
}

// Died reports that a container of a pod, or the pod, has ended. After ContainerConfig.Delay
// there is one pass over the pods reported until then. It does not block, and may be called
// before Run.
func (m *ContainerCollector) Died(uid types.UID) {
	m.mu.Lock()
	m.died[uid] = true
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	// Run is to be woken already, and takes all of died.
	default:
	}
}

// Hold keeps everything of a pod from being removed until release is called,
// and waits until nothing of it is being removed. It is for the time of a sync:
// what the pod has when Hold returns is what it has until then. The error is
// ctx's. The same pod may be held more than once.
func (m *ContainerCollector) Hold(ctx context.Context, uid types.UID) (release func(), err error) {
	h := m.holds.Open()
	// Whether something was removed meanwhile is not told: ContainerConfig.Removed has been called
	// for it, and the caller looks at the pod after this.
	if _, err := h.Add(ctx, uid); err != nil {
		h.Release()
		return nil, err
	}
	// Removals that the hold has stopped are made up for soon after it, and not at the next
	// pass over all pods.
	return func() {
		h.Release()
		m.resume(uid)
	}, nil
}

// Run makes a pass over all pods now and every ContainerConfig.Interval, and one over
// each pod that Died names, until ctx ends; then it returns nil. A failure is
// logged, and one of a pass over all pods is an event.
func (m *ContainerCollector) Run(ctx context.Context) error {
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	// What died while the process was down has no Died.
	m.all(ctx)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
			// The first Died sets the time. Later ones do not put it off: a pod that crashes
			// all the time would never be looked at.
			if due == nil {
				due = time.After(m.cfg.Delay)
			}
		case <-due:
			due = nil
			m.some(ctx)
		case <-tick.C:
			m.all(ctx)
		}
	}
}

// all makes a pass over all pods and reports a failure. What fails because ctx has ended is
// none.
func (m *ContainerCollector) all(ctx context.Context) {
	if _, err := m.Collect(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("container collection failed", zap.Error(err))
		if m.cfg.Events != nil {
			m.cfg.Events.Event(eventWarning, reasonContainerGCFailed, err.Error())
		}
	}
}

// some looks at the pods of which something died. It blocks until all of them are done; what
// dies meanwhile is for the next call. The failure of a single pod is no event: a pass over
// all pods follows, and reports what lasts.
func (m *ContainerCollector) some(ctx context.Context) {
	m.mu.Lock()
	died := m.died
	// Taken before the look: a Died during it must lead to another one.
	m.died = map[types.UID]bool{}
	m.mu.Unlock()
	if m.policy.MaxContainers >= 0 && len(died) > 0 { // a limit over all of them
		m.all(ctx)
		return
	}
	each(m, died, func(uid types.UID) {
		// A pass for each pod: one that hangs keeps no others open.
		r := m.begin(false)
		defer r.holds.End()
		if err := r.collect(ctx, uid); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("collection of a pod failed", zap.String("uid", string(uid)), zap.Error(err))
		}
	})
}
