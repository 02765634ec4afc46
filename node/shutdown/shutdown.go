package shutdown

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
	"github.com/nodewright/nodewright/podlife"
)

// Pods knows what runs.
type Pods interface {
	// Active lists the pods that have not come to their end. They are not
	// changed.
	Active() []*v1.Pod
}

// Killer ends pods.
type Killer interface {
	// Kill ends a pod within the time that why gives, has it applied to the pod's
	// status, and returns when no container of it runs, or ctx ends.
	Kill(ctx context.Context, pod *v1.Pod, why podlife.Cause) error
}

// Volumes knows what is mounted.
type Volumes interface {
	// WaitUnmounted returns nil when no volume of the pods is mounted any
	// more, or an error when ctx ends.
	WaitUnmounted(ctx context.Context, pods []*v1.Pod) error
}

// Store keeps a value under a key; *checkpoint.Store does. Read's error is
// fs.ErrNotExist if there is none.
type Store interface {
	Write(key string, value []byte) error
	Read(key string) ([]byte, error)
}

// Config holds what a Manager needs. Machine, Pods and Killer are required,
// unless there are no groups; the zero value of every other field means the
// default named beside it.
type Config struct {
	// Requested is the time of all pods together, and Critical the part of it
	// that pods of the system have to themselves; see Split. 0: shutdowns are
	// not handled, and pods always admitted.
	Requested, Critical time.Duration
	// Groups take the place of Requested and Critical; their order does not
	// matter.
	Groups []Group
	// PassOn gives the time that a group did not need to the next one's pods.
	// The whole takes no longer for it than the sum of the groups. The kubelet
	// does not do that: false.
	PassOn bool

	Machine Machine
	Pods    Pods
	Killer  Killer
	Volumes Volumes // none to wait for
	State   Store   // nothing outlasts the agent

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

// Manager terminates the pods of a node whose machine shuts down. Its methods may be called
// from any goroutine.
type Manager struct {
	cfg    Config
	groups []Group // by priority
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

// New checks cfg and returns a Manager at rest.
func New(cfg Config) (*Manager, error) {
	errs := []error{validateGroups(cfg.Requested, cfg.Critical, cfg.Groups)}
	groups := cfg.Groups
	if len(groups) == 0 {
		groups = splitPeriods(cfg.Requested, cfg.Critical)
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
	return &Manager{cfg: cfg, groups: sorted(groups), met: met, keeping: make(chan struct{}, 1)}, nil
}

// Admit reports whether pods may start: none may while the machine goes down,
// static and critical ones included.
func (m *Manager) Admit() (reason, message string, ok bool) {
	if m.Err() != nil {
		return ReasonNotAdmitted, messageNotAdmitted, false
	}
	return "", "", true
}

// ErrShuttingDown is what a node that goes down is not ready for.
var ErrShuttingDown = errors.New("node is shutting down")

// Err returns ErrShuttingDown while the machine goes down, else nil.
func (m *Manager) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return ErrShuttingDown
	}
	return nil
}

// Run watches the machine until ctx ends, and returns nil when every goroutine
// has ended. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
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
func (m *Manager) doubt(ctx context.Context) (stop func()) {
	t := time.AfterFunc(total(m.groups)+killSlack, func() {
		if m.Err() != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("nothing confirms the shutdown that an earlier agent saw")
			m.set(ctx, false)
		}
	})
	return func() { t.Stop() }
}

// set takes what the machine says.
func (m *Manager) set(ctx context.Context, down bool) {
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
func (m *Manager) tell(down bool) {
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
		m.cfg.Event(reasonShutdown, message)
		m.cfg.Changed(down)
	})
}

// end takes the groups in turn. Kills live as long as ctx; no new ones begin
// when running has ended.
func (m *Manager) end(ctx, running context.Context) {
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
