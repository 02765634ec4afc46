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
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// The Agent, and the course of its Run: what is built, in which order it starts,
// and in which order it ends.

// Agent is a node agent. All methods may be called from any goroutine.
type Agent struct {
	query *query.Query // answers about pods and the node

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
	// volumes and the blocks around it are made by New and never replaced.
	volumes  Volumes
	probes   *probe.Manager
	statuses *statusmgr.Manager

	events     *local.EventLog
	eventStore local.EventStore
	node       *fit.Node
	facts      facts
	// book has the stage of each pod's admission; only the loop decides by it.
	book *book.Book
	keep *keep.Keeper
	// admission answers whether pods may run.
	admission *admit.Admission
	// boots is nil without an API server; it never changes once the loop runs.
	boots *boots.Record
	run   running
}

// running is what there is of one Run.
type running struct {
	begun   atomic.Bool
	ready   chan struct{} // closed when the blocks run
	settled chan struct{} // closed when every source has spoken
	settle  func()        // closes settled, once
	cleanup chan struct{} // asks the loop for housekeeping; capacity 1
	readmit chan struct{} // asks the loop about pods that wait; capacity 1
	// changed is set from any goroutine: an answer of a part has changed since pods that wait
	// were asked about.
	changed atomic.Bool
	beat    atomic.Pointer[time.Time] // when the loop last turned
	results sync.Mutex                // held while readiness goes from probes to statuses
	resolv  atomic.Pointer[string]    // what was last looked at of the node's resolv.conf
	wg      sync.WaitGroup            // what runs beside the loop
}

// New checks cfg and builds an Agent at rest. Nothing is opened, made or started
// before [Agent.Run].
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
	a.run.cleanup, a.run.readmit = make(chan struct{}, 1), make(chan struct{}, 1)
	if err := a.buildBlocks(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.query, a.keep = a.questions(), a.keeper()
	// Parts join last, as they may ask the agent for anything from then on.
	if err := a.join(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// Ready is closed when Run works: the lock is held and the
// blocks run. It does not wait for the runtime or for any pod.
func (a *Agent) Ready() <-chan struct{} { return a.run.ready }

// ErrStarted is returned by a second Run of an Agent.
var ErrStarted = errors.New("agent: Run has been called before; an Agent runs once")

// endPatience is how long Run's end waits for calls that hang, such as those to a
// disk that does not answer: an agent can always be ended.
const endPatience = 30 * time.Second

// Run takes the lock of the agent's directories and runs pods until ctx ends. Then it
// stops its own work, leaves every container running, and returns nil. An error
// means that it could not begin (the directory cannot be used, another agent
// holds it: node.ErrLocked, it has run before: [ErrStarted]), or that a block
// or a part has ended with that error, which ends everything else. Work that
// hangs half a minute after the end is abandoned, with the lock.
func (a *Agent) Run(ctx context.Context) error {
	if !a.run.begun.CompareAndSwap(false, true) {
		return ErrStarted
	}
	lock, err := a.lock()
	if err != nil {
		return err
	}
	// Under the lock: without it the directory may be another agent's.
	if err := os.MkdirAll(a.podsDir(), 0o750); err != nil {
		lock.Release()
		return fmt.Errorf("root directory: %w", err)
	}
	a.hooks.Log(a.log)
	if len(a.hooks.Holders) == 0 {
		a.log.Warn("no part rotates logs or removes dead containers and unused images; see pressure.NewCollection")
	}
	// The cause says whether the end was asked for, or which block failed.
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	// Room for one: work that hangs past the end may return when nobody listens any
	// more.
	ended := make(chan error, 1)
	go func() {
		// The lock goes last, with the work: another agent must not begin while
		// calls of this one are still under way.
		err := a.work(running, end)
		lock.Release()
		ended <- err
	}()
	var late <-chan time.Time
	for done := running.Done(); ; {
		select {
		case err := <-ended:
			return err
		// done is set to nil, as a closed channel would be chosen again at once.
		case <-done:
			done, late = nil, time.After(endPatience)
		case <-late:
			a.log.Error("exiting although some work has not ended", zap.Duration("after", endPatience))
			return failureOf(running)
		}
	}
}

// lock keeps other agents away from the agent's root directory, which is there
// then, as is that of the pods' logs: nothing in them is opened, made or removed
// before that. Log collectors see the pods' logs, and anybody who can open a
// lock's file can hold it, so that there is none among the logs.
func (a *Agent) lock() (*node.DirLock, error) {
	if l := a.cfg.Lock; l != nil {
		return l, l.Hold()
	}
	if err := os.MkdirAll(a.cfg.Paths.Root, 0o750); err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}
	if err := os.MkdirAll(a.cfg.Paths.PodLogs, 0o755); err != nil { //nolint:gosec // log collectors are other users
		return nil, fmt.Errorf("directory of pod logs: %w", err)
	}
	return node.LockRoot(a.cfg.Paths.Root)
}

// work is Run, once it has begun; end ends it. It blocks until everything has
// ended: the loop and the workers first, then those that they need.
func (a *Agent) work(ctx context.Context, end func(error)) error {
	// Statuses are written until the last worker has ended, and the workers
	// want the runtime's state and the parts until then.
	readers, stopReaders := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReaders()
	// Before any pod is adopted: the first status of each is compared with what was
	// published. What cannot be read is lost, which is no reason to run no pods.
	if err := a.statuses.Restore(readers); err != nil {
		a.log.Error("failed to restore all statuses", zap.Error(err))
	}
	if !a.pods.IsConfirmed() { // else there is no API server
		a.boots = boots.Read(a.cfg.Paths.Root, a.cfg.Volumes.BootID, a.log)
	}
	var lower sync.WaitGroup
	for name, run := range a.lower() {
		lower.Go(func() {
			if err := run(readers); err != nil && !(isCanceled(err) && readers.Err() != nil) {
				end(&failure{name, err}) // the others go down with it
			}
		})
	}
	upper, uctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{a.probes.Run, a.pods.Run, a.workers.Run, a.loop, a.publishConfirmed} {
		upper.Go(func() error { return run(uctx) })
	}
	close(a.run.ready)

	err := upper.Wait()
	// What runs beside the loop may still use the blocks below.
	a.run.wg.Wait()
	// No deadline of a pod may wake a worker any more.
	a.book.Close()
	stopReaders()
	lower.Wait()
	return errors.Join(err, failureOf(ctx))
}

// failure is the error with which a block or a part has ended.
type failure struct {
	name string
	err  error
}

func (f *failure) Error() string { return f.name + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failureOf is why ctx has ended, if that is a failure: an end that the caller
// asked for is none.
func failureOf(ctx context.Context) error {
	if f := (*failure)(nil); errors.As(context.Cause(ctx), &f) {
		return f
	}
	return nil
}

// lower are the blocks and parts that the pod workers need to their end. Their
// order does not matter: each copes with the others being late.
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

// podsDir and podDir are those of the kubelet's layout, so that a machine can
// change from one to the other.
func (a *Agent) podsDir() string             { return filepath.Join(a.cfg.Paths.Root, "pods") }
func (a *Agent) podDir(uid types.UID) string { return filepath.Join(a.podsDir(), string(uid)) }
