package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/agent/internal/book"
	"github.com/nodewright/nodewright/agent/internal/boots"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/keep"
	"github.com/nodewright/nodewright/agent/internal/metrics"
	"github.com/nodewright/nodewright/agent/internal/query"
	"github.com/nodewright/nodewright/agent/internal/volumes"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// The Agent and its Run: which blocks are built, and in which order they start and end.

// Agent is a node agent. All methods may be called from any goroutine.
type Agent struct {
	query *query.Query // answers requests about pods and the node

	cfg     Config
	log     *zap.Logger
	metrics *metrics.Metrics
	hooks   *hooks.Hooks
	guard   *hooks.Guard

	pods    *podmgr.Manager
	pleg    *pleg.Manager
	workers *podworker.Manager
	runtime *podruntime.Manager
	images  *images.Manager
	// New creates volumes and the following blocks. They are never replaced.
	volumes  Volumes
	probes   *probe.Manager
	statuses *statusmgr.Manager

	events     *local.EventLog
	eventStore local.EventStore
	node       *fit.Node
	facts      facts
	// book has the stage of each pod's admission. Only the loop uses it for decisions.
	book *book.Book
	keep *keep.Keeper
	// admission decides whether pods may run.
	admission *admit.Admission
	// boots is nil without an API server. The field does not change once the loop runs.
	boots *boots.Record
	run   running
}

// running is the state of Run.
type running struct {
	begun   atomic.Bool
	ready   chan struct{} // closed when the blocks run
	settled chan struct{} // closed when every source has delivered
	settle  func()        // closes settled, once
	cleanup wake.Signal   // requests housekeeping from the loop
	readmit wake.Signal   // requests decisions on waiting pods from the loop
	// changed is set from any goroutine: the answer of a part may have changed since the waiting
	// pods were last decided on.
	changed atomic.Bool
	beat    atomic.Pointer[time.Time] // time at which the loop last handled an event or a timer
	results sync.Mutex                // held while readiness is copied from probes to statuses
	resolv  atomic.Pointer[string]    // content of the node's resolv.conf when it was last checked
	wg      sync.WaitGroup            // goroutines beside the loop
}

// New checks cfg and builds an Agent. It opens, creates and starts nothing before [Agent.Run].
func New(cfg Config) (*Agent, error) {
	// All mistakes in the configuration and in the list of parts are reported at
	// once.
	cfg = cfg.withDefaults()
	h, err := hooks.Find(cfg.Parts)
	if err := errors.Join(cfg.validate(), err); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a := &Agent{cfg: cfg, log: cfg.Log, hooks: h, volumes: cfg.Volumes.Manager, book: book.New(), facts: newFacts(&cfg)}
	a.run.ready, a.run.settled = make(chan struct{}), make(chan struct{})
	a.run.settle = sync.OnceFunc(func() { close(a.run.settled) })
	a.run.cleanup, a.run.readmit = wake.New(), wake.New()
	if err := a.buildBlocks(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.query, a.keep = a.questions(), a.keeper()
	// Parts join last, since they may call the agent from then on.
	if err := a.join(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// Ready is closed when Run holds the lock and its blocks run. It does not wait for the runtime or
// for any pod.
func (a *Agent) Ready() <-chan struct{} { return a.run.ready }

// ErrStarted is returned by a second Run of an Agent.
var ErrStarted = errors.New("agent: Run has been called before; an Agent runs once")

// endTimeout limits the wait for hanging calls at the end of Run, such as calls to a disk that
// does not answer: an agent can always be stopped.
const endTimeout = 30 * time.Second

// Run locks the agent's directories and runs pods until ctx ends. Then it stops its own work,
// leaves every container running, and returns nil. It returns an error if it cannot begin: the
// directory cannot be used, another agent has the lock (node.ErrLocked), or Run was called before
// ([ErrStarted]). It also returns the error of a block or a part that ends, which ends everything
// else. Work that still hangs half a minute later is abandoned, and so is the lock.
func (a *Agent) Run(ctx context.Context) error {
	if !a.run.begun.CompareAndSwap(false, true) {
		return ErrStarted
	}
	lock, err := a.lock()
	if err != nil {
		return err
	}
	// Created under the lock: before, the directory may belong to another agent.
	if err := os.MkdirAll(a.podsDir(), 0o750); err != nil {
		lock.Release()
		return fmt.Errorf("create directory of pods: %w", err)
	}
	if err := volumes.Share(ctx, a.cfg.Volumes.Mounter, a.cfg.Paths.Root); err != nil {
		a.log.Warn("failed to make mount of root directory shared, which CSI drivers in pods need", zap.String("dir", a.cfg.Paths.Root), zap.Error(err))
	}
	a.hooks.Log(a.log)
	if len(a.hooks.Holders) == 0 {
		a.log.Warn("no part rotates logs or removes dead containers and unused images; see pressure.NewCollection")
	}
	// The cause says whether the caller ended Run, or which block failed.
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	// The channel has capacity 1: hanging work may return after Run.
	ended := make(chan error, 1)
	go func() {
		// The lock is released last: another agent must not start while calls of this one are
		// running.
		err := a.work(running, end)
		lock.Release()
		ended <- err
	}()
	var late <-chan time.Time
	for done := running.Done(); ; {
		select {
		case err := <-ended:
			return err
		// done is set to nil; otherwise the closed channel would be selected again at once.
		case <-done:
			done, late = nil, time.After(endTimeout)
		case <-late:
			a.log.Error("exiting although some work has not ended", zap.Duration("after", endTimeout))
			return failureOf(running)
		}
	}
}

// lock creates the agent's root directory and locks it against other agents. Then it creates the
// directory of the pods' logs. Nothing in these directories is opened, created or removed before.
// The file of the lock is not in the directory of logs: log collectors can read that directory,
// and any process that can open the file can hold the lock.
func (a *Agent) lock() (*node.DirLock, error) {
	if l := a.cfg.Lock; l != nil {
		return l, l.Hold()
	}
	if err := os.MkdirAll(a.cfg.Paths.Root, 0o750); err != nil {
		return nil, fmt.Errorf("create root directory: %w", err)
	}
	if err := os.MkdirAll(a.cfg.Paths.PodLogs, 0o755); err != nil { //nolint:gosec // log collectors are other users
		return nil, fmt.Errorf("directory of pod logs: %w", err)
	}
	return node.LockRoot(a.cfg.Paths.Root)
}

// work runs the agent under the lock, until ctx ends or end is called. It returns when everything
// has ended: first the loop and the workers, then the blocks that they use.
func (a *Agent) work(ctx context.Context, end func(error)) error {
	// Statuses are written until the last worker has ended. Until then workers also need the
	// runtime's state and the parts.
	readers, stopReaders := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReaders()
	// Restored before any pod is adopted: the first status of each pod is compared with the
	// published one. An unreadable status is lost, but pods still run.
	if err := a.statuses.Restore(readers); err != nil {
		a.log.Error("failed to restore all statuses", zap.Error(err))
	}
	if !a.pods.IsConfirmed() { // otherwise there is no API server
		a.boots = boots.Read(a.cfg.Paths.Root, a.cfg.Volumes.BootID, a.log)
	}
	var lower sync.WaitGroup
	for name, run := range a.lower() {
		lower.Go(func() {
			if err := run(readers); err != nil && !(isCanceled(err) && readers.Err() != nil) {
				end(&failure{name, err}) // all others end too
			}
		})
	}
	upper, uctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{a.probes.Run, a.pods.Run, a.workers.Run, a.loop, a.publishConfirmed} {
		upper.Go(func() error { return run(uctx) })
	}
	close(a.run.ready)

	err := upper.Wait()
	// Goroutines beside the loop may still use the blocks below.
	a.run.wg.Wait()
	// From here on, no deadline of a pod wakes a worker.
	a.book.Close()
	stopReaders()
	lower.Wait()
	return errors.Join(err, failureOf(ctx))
}

// failure is the error with which a block or a part ended.
type failure struct {
	name string
	err  error
}

func (f *failure) Error() string { return f.name + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failureOf returns the error of the block or part that ended ctx; nil if the caller
// ended it.
func failureOf(ctx context.Context) error {
	if f := (*failure)(nil); errors.As(context.Cause(ctx), &f) {
		return f
	}
	return nil
}

// lower returns the blocks and parts that the pod workers need until they end. They may start in
// any order.
func (a *Agent) lower() map[string]func(context.Context) error {
	all := map[string]func(context.Context) error{
		"pleg": a.pleg.Run, "statuses": a.statuses.Run, "volumes": a.runVolumes,
		"events": func(ctx context.Context) error { return a.events.Keep(ctx, a.eventStore) },
	}
	if r, ok := a.cfg.Cgroups.(CgroupRunner); ok {
		all["cgroups"] = r.Run
	}
	for _, r := range a.hooks.Runners {
		all["part "+r.Name] = func(ctx context.Context) error {
			return a.guard.Call(r.Name, func() error { return r.Hook.Run(ctx) })
		}
	}
	return all
}

// podsDir and podDir use the kubelet's layout, so that a kubelet and the agent can take over
// from each other.
func (a *Agent) podsDir() string             { return filepath.Join(a.cfg.Paths.Root, "pods") }
func (a *Agent) podDir(uid types.UID) string { return filepath.Join(a.podsDir(), string(uid)) }
