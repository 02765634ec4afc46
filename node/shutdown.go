package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/retry"
)

// ShutdownPods knows what runs.
type ShutdownPods interface {
	// Active lists the pods that have not come to their end. They are not
	// changed.
	Active() []*v1.Pod
}

// ShutdownKiller ends pods.
type ShutdownKiller interface {
	// Kill ends a pod within the grace, in seconds, has its status changed by
	// the function, and returns when no container of it runs, or ctx ends.
	Kill(ctx context.Context, pod *v1.Pod, grace int64, status func(*v1.PodStatus)) error
}

// ShutdownVolumes knows what is mounted.
type ShutdownVolumes interface {
	// WaitUnmounted returns nil when no volume of the pods is mounted any
	// more, or an error when ctx ends.
	WaitUnmounted(ctx context.Context, pods []*v1.Pod) error
}

// ShutdownStore keeps a value under a key; *checkpoint.Store does. Read's error is
// fs.ErrNotExist if there is none.
type ShutdownStore interface {
	Write(key string, value []byte) error
	Read(key string) ([]byte, error)
}

// ShutdownConfig holds what a Manager needs. Machine, Pods and Killer are required,
// unless there are no groups; the zero value of every other field means the
// default named beside it.
type ShutdownConfig struct {
	// Requested is the time of all pods together, and Critical the part of it
	// that pods of the system have to themselves; see Split. 0: shutdowns are
	// not handled, and pods always admitted.
	Requested, Critical time.Duration
	// Groups take the place of Requested and Critical; their order does not
	// matter.
	Groups []ShutdownGroup
	// PassOn gives the time that a group did not need to the next one's pods.
	// The whole takes no longer for it than the sum of the groups. The kubelet
	// does not do that: false.
	PassOn bool

	Machine ShutdownMachine
	Pods    ShutdownPods
	Killer  ShutdownKiller
	Volumes ShutdownVolumes // none to wait for
	State   ShutdownStore   // nothing outlasts the agent

	// Changed is called when the machine is about to go down (true) and when
	// not after all, such as to tell of it in the node's status. It is called
	// in a goroutine of its own.
	Changed func(down bool)
	// Event is told of the node's Normal events.
	Event func(reason, message string)
	// BootID differs after a reboot; that of the kernel.
	BootID string

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Waits between two tries to watch the machine.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// killSlack is how much longer than its group's time a kill may last before
// its ctx ends. A pod's grace is no longer than that time, and then its
// containers have yet to be killed.
const killSlack = 10 * time.Second

// Shutdown terminates a node's pods in order when the machine shuts down, and delays
// the shutdown for as long as that takes (KEP-2000, KEP-2712).
//
//	m, err := node.NewShutdown(node.ShutdownConfig{
//		Requested: 30 * time.Second, // for all pods, of which
//		Critical:  10 * time.Second, // for those of the system
//		Machine:   node.NewLogind(node.LogindConfig{}),
//		Pods:      pods, Killer: workers, Volumes: volumes,
//		State:     store,
//	})
//	if err != nil {
//		return err
//	}
//	err = m.Restore() // before the first pod is admitted
//	go m.Run(ctx)
//	if reason, message, ok := m.Admit(); !ok { ... }
//
// Its methods may be called from any goroutine.
//
// # Order
//
// Pods are terminated in groups by priority, the lowest first. The pods of a group are
// terminated in parallel, each with its own grace period or the group's time, whichever is
// less. The next group follows when their containers have ended and their volumes are
// unmounted, or when the group's time is over. [PlanShutdown] and [SplitShutdown] are the pure part.
//
// If the shutdown is cancelled, the remaining groups are not terminated.
//
// # The machine
//
// [Logind] is a [ShutdownMachine] of systems with systemd-logind. [OnSignal] is for
// machines without it: there a SIGTERM to the agent means that the machine shuts down. Use it
// only where that is so, since a SIGTERM also precedes a restart of the agent, which must not
// terminate any pod.
//
// # Faults
//
// The beginning of a shutdown is written to ShutdownConfig.State first. An agent that is killed and
// started again during a shutdown admits no pods and continues with the remaining ones; after
// a reboot, the agent knows when the last shutdown began and whether it was completed. A
// termination or an unmount that hangs takes its group's time at most. A Machine that fails
// is watched again with back-off.
type Shutdown struct {
	cfg    ShutdownConfig
	groups []ShutdownGroup // by priority
	met    *metrics

	wg sync.WaitGroup // everything that Run has started

	setting sync.Mutex    // held for one change of the machine's
	told    chan struct{} // closed when the last one has been told of; guarded by setting
	keeping chan struct{} // holds a value while the state is written

	mu      sync.Mutex
	state   state
	down    bool
	callOff context.CancelFunc // ends the run through the groups; nil if there is none
}

// NewShutdown checks cfg and returns a Manager at rest.
func NewShutdown(cfg ShutdownConfig) (*Shutdown, error) {
	errs := []error{ValidateShutdown(cfg.Requested, cfg.Critical, cfg.Groups)}
	groups := cfg.Groups
	if len(groups) == 0 {
		groups = SplitShutdown(cfg.Requested, cfg.Critical)
	}
	if len(groups) > 0 {
		for name, missing := range map[string]bool{"Machine": cfg.Machine == nil, "Pods": cfg.Pods == nil, "Killer": cfg.Killer == nil} {
			if missing {
				errs = append(errs, fmt.Errorf("field ShutdownConfig.%s is required", name))
			}
		}
	}
	if cfg.Changed == nil {
		cfg.Changed = func(bool) {}
	}
	if cfg.Event == nil {
		cfg.Event = func(string, string) {}
	}
	if cfg.BootID == "" {
		cfg.BootID, _ = bootid.Read(os.DirFS("/")) // "" if nothing names it
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	met, err := newMetrics(cfg.Metrics)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("shutdown: %w", err)
	}
	return &Shutdown{cfg: cfg, groups: sorted(groups), met: met, keeping: make(chan struct{}, 1)}, nil
}

// Admit reports whether pods may start: none may while the machine goes down,
// static and critical ones included.
func (m *Shutdown) Admit() (reason, message string, ok bool) {
	if m.Err() != nil {
		return ReasonNotAdmitted, messageNotAdmitted, false
	}
	return "", "", true
}

// ErrShuttingDown is what a node that goes down is not ready for.
var ErrShuttingDown = errors.New("node is shutting down")

// Err returns ErrShuttingDown while the machine goes down, else nil.
func (m *Shutdown) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return ErrShuttingDown
	}
	return nil
}

// Run watches the machine until ctx ends, and returns nil when every goroutine
// has ended. It may be called once.
func (m *Shutdown) Run(ctx context.Context) error {
	defer m.wg.Wait()
	if len(m.groups) == 0 {
		<-ctx.Done()
		return nil
	}
	wait, told := retry.Backoff{First: firstRetry, Max: lastRetry}, ""
	stop := m.doubt(ctx)
	defer stop()
	for ctx.Err() == nil {
		began := time.Now()
		err := m.cfg.Machine.Watch(ctx, total(m.groups), func(down bool) {
			stop()
			m.set(ctx, down)
		})
		if ctx.Err() != nil {
			break
		}
		if wait.Recovered(time.Since(began)) {
			told = ""
		}
		if why := fmt.Sprint(err); why != told {
			told = why
			m.cfg.Log.Warn("shutdowns of the machine cannot be watched, trying again", zap.Error(err))
		}
		wait.Wait(ctx)
	}
	return nil
}

// doubt ends a shutdown that is only remembered, if the machine does not
// confirm it within the time of all groups: an agent that cannot know must not
// refuse pods for ever.
func (m *Shutdown) doubt(ctx context.Context) (stop func()) {
	t := time.AfterFunc(total(m.groups)+killSlack, func() {
		if m.Err() != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("nothing confirms the shutdown that an earlier agent saw")
			m.set(ctx, false)
		}
	})
	return func() { t.Stop() }
}

// set takes what the machine says.
func (m *Shutdown) set(ctx context.Context, down bool) {
	m.setting.Lock()
	defer m.setting.Unlock()
	m.mu.Lock()
	if ctx.Err() != nil || down == m.down && (!down || m.callOff != nil) {
		m.mu.Unlock()
		return // nothing new
	}
	resumed := down && m.down // remembered, and now confirmed
	m.down = down
	if m.callOff != nil {
		m.callOff()
		m.callOff = nil
	}
	running := ctx
	if down {
		running, m.callOff = context.WithCancel(ctx)
		m.state.EndTime = time.Time{}
		if !resumed {
			m.state.StartTime = time.Now()
		}
	}
	m.state.Down, m.state.Boot = down, m.cfg.BootID
	m.mu.Unlock()

	m.cfg.Log.Info("shutdown", zap.Bool("down", down), zap.Bool("resumed", resumed))
	m.tell(down)
	m.keep()
	if down {
		m.wg.Go(func() { m.end(ctx, running) })
	}
}

// tell has others told, of one change after the other. The caller holds
// m.setting.
func (m *Shutdown) tell(down bool) {
	message := messageOff
	if down {
		message = messageBegun
	}
	before, told := m.told, make(chan struct{})
	m.told = told
	m.wg.Go(func() {
		defer close(told)
		if before != nil {
			<-before
		}
		m.cfg.Event(ReasonShutdown, message)
		m.cfg.Changed(down)
	})
}

// end takes the groups in turn. Kills live as long as ctx; no new ones begin
// when running has ended.
func (m *Shutdown) end(ctx, running context.Context) {
	begun := map[types.UID]bool{}
	var spare time.Duration // that earlier groups did not need
	for i, g := range m.groups {
		if running.Err() != nil {
			return
		}
		within := g.Time
		if m.cfg.PassOn {
			within += spare
		}
		start := time.Now()
		m.turn(ctx, running, i, within, begun)
		spare = max(0, within-time.Since(start))
	}
	m.mu.Lock()
	if running.Err() == nil {
		m.state.EndTime = time.Now()
	}
	m.mu.Unlock()
	m.keep() // the machine may be gone a moment after its release
	m.mu.Lock()
	defer m.mu.Unlock() // so that it is not called off meanwhile
	if running.Err() == nil {
		m.cfg.Log.Info("pods have ended, the machine may go down", zap.Duration("took", m.state.EndTime.Sub(m.state.StartTime)))
		m.cfg.Machine.Release()
	}
}
