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

// Pods lists the running pods.
type Pods interface {
	// Active returns the pods that have not ended. The caller does not change them.
	Active() []*v1.Pod
}

// Killer terminates pods.
type Killer interface {
	// Kill terminates a pod within the grace period of the cause, and writes the reason and
	// message of the cause into the pod's status. It returns when no container of the pod runs,
	// or ctx ends.
	Kill(ctx context.Context, pod *v1.Pod, why podlife.Cause) error
}

// Volumes waits for unmounts.
type Volumes interface {
	// WaitUnmounted returns nil when no volume of the pods is mounted any more, or
	// an error when ctx ends.
	WaitUnmounted(ctx context.Context, pods []*v1.Pod) error
}

// Store stores a value under a key; *checkpoint.Store implements it. For a key without a value,
// Read returns fs.ErrNotExist.
type Store interface {
	Write(key string, value []byte) error
	Read(key string) ([]byte, error)
}

// Config configures a [Manager]. Machine, Pods and Killer are required, unless
// there are no groups; the zero value of every other field means the default named
// beside it.
type Config struct {
	// Requested is the time of all pods together, and Critical the part of it reserved for pods
	// of the system. If Requested is 0, shutdowns are not handled, and pods are always admitted.
	Requested, Critical time.Duration
	// Groups replace Requested and Critical; their order does not matter.
	Groups []Group

	Machine Machine
	Pods    Pods
	Killer  Killer
	Volumes Volumes // if nil, a shutdown does not wait until volumes are unmounted
	State   Store   // if nil, the state does not survive a restart

	// Changed is called with true when a shutdown begins, and with false when it is cancelled,
	// for example to update the node's status. It is called on a goroutine of its own. If it is
	// nil, nothing is called.
	Changed func(down bool)
	// Event gets the node's Normal events.
	Event func(reason, message string)
	// BootID identifies the boot of the machine. The default is the kernel's boot ID.
	BootID string

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Waits between two tries to watch the machine.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// killSlack is added to the group's time for the timeout of a kill: after a pod's grace period,
// its containers still have to be killed.
const killSlack = 10 * time.Second

// Manager terminates the pods of a node whose machine shuts down. Its methods may
// be called from any goroutine.
type Manager struct {
	cfg    Config
	groups []Group // by priority
	met    *metrics

	wg sync.WaitGroup // everything that Run has started

	setting sync.Mutex    // held during one change of the machine's state
	told    chan struct{} // closed when the last change has been reported; guarded by setting
	keeping chan struct{} // holds a value while the state is written

	mu      sync.Mutex
	state   state
	down    bool
	callOff context.CancelFunc // ends the termination of groups; nil if there is none
}

// New checks cfg and returns a Manager, which Run starts.
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

// Admit reports whether pods may start: none may during a shutdown, static and
// critical ones included.
func (m *Manager) Admit() (reason, message string, ok bool) {
	if m.Err() != nil {
		return ReasonNotAdmitted, messageNotAdmitted, false
	}
	return "", "", true
}

// ErrShuttingDown is the reason why a node is not ready during a shutdown.
var ErrShuttingDown = errors.New("node is shutting down")

// Err returns ErrShuttingDown during a shutdown, and otherwise nil.
func (m *Manager) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return ErrShuttingDown
	}
	return nil
}

// Run watches the machine until ctx ends, and returns nil when every goroutine has
// ended. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	defer m.wg.Wait()
	if len(m.groups) == 0 {
		<-ctx.Done()
		return nil
	}
	wait, told := retry.Backoff{First: firstRetry, Max: lastRetry}, ""
	stop := m.cancelUnconfirmed(ctx)
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
			m.cfg.Log.Warn("failed to watch shutdowns of the machine, trying again", zap.Error(err))
		}
		wait.Wait(ctx)
	}
	return nil
}

// cancelUnconfirmed cancels a shutdown that Restore has read if the machine does not confirm it
// within the time of all groups. Otherwise an agent whose machine reports nothing would
// reject all pods without end.
func (m *Manager) cancelUnconfirmed(ctx context.Context) (stop func()) {
	t := time.AfterFunc(total(m.groups)+killSlack, func() {
		if m.Err() != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("cancelled stored shutdown: the machine does not confirm it")
			m.set(ctx, false)
		}
	})
	return func() { t.Stop() }
}

// set applies the machine's state.
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

	m.cfg.Log.Info("state of machine shutdown changed", zap.Bool("down", down), zap.Bool("resumed", resumed))
	m.tell(down)
	m.keep()
	if down {
		m.wg.Go(func() { m.end(ctx, running) })
	}
}

// tell starts a goroutine that sends an event and calls Config.Changed, when a shutdown begins or
// is cancelled. Each goroutine waits for the one before, so Config.Changed is called in the order
// of the changes. The caller holds m.setting.
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

// end terminates the groups in order. No new termination begins after the context running has
// ended. Terminations that have begun continue until ctx ends.
func (m *Manager) end(ctx, running context.Context) {
	begun := map[types.UID]bool{}
	for i := range m.groups {
		if running.Err() != nil {
			return
		}
		m.turn(ctx, running, i, begun)
	}
	m.mu.Lock()
	if running.Err() == nil {
		m.state.EndTime = time.Now()
	}
	m.mu.Unlock()
	m.keep() // the machine may be down a moment after the release
	m.mu.Lock()
	defer m.mu.Unlock() // so that the shutdown is not cancelled meanwhile
	if running.Err() == nil {
		m.cfg.Log.Info("terminated pods for shutdown", zap.Duration("took", m.state.EndTime.Sub(m.state.StartTime)))
		m.cfg.Machine.Release()
	}
}
