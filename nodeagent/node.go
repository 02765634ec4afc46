package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/node"
)

// Node is a whole node: an agent with its parts and services. It implements
// local.Handler for people at the machine. All methods may be called from any
// goroutine.
type Node struct {
	*agent.Agent

	options   Options
	endpoint  string // of the runtime; "" for an embedder's own
	builder   *Builder
	file      *node.FileLock // nil: there is no lock file
	lock      *node.DirLock
	client    *cri.Client                 // nil: the runtime is the embedder's, or local
	local     *LocalRuntime               // nil: the runtime is in another process
	remember  func(context.Context) error // records the runtime before any pod runs on it; nil: it is recorded already
	services  []service
	opening   []<-chan struct{} // closed when their component is open
	onSocket  map[string]http.Handler
	onPods    []func() []*v1.Pod
	up        chan struct{}
	described description
	history   local.History
	// begun is set by the first call of Run or Close. A later call of the other one returns at
	// once.
	begun atomic.Bool
}

// New returns a Node, which Run starts. The package documentation has the order and the
// side effects. ctx limits only New. The node's directories are locked until the end of
// Run, or until Close: if another agent has locked one of them, the error is
// node.ErrLocked, and nothing in them was changed. If a lock file is configured, New
// locks it first. If another process has locked the file, New waits for it until ctx
// ends.
func New(ctx context.Context, o Options) (*Node, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	n := &Node{options: o, up: make(chan struct{})}
	var err error
	// Locked before the directories: the agent that has them releases the lock file last.
	if path := o.Config.LockFile; path != "" {
		o.Log.Info("taking lock file", zap.String("path", path))
		if n.file, err = node.LockFile(ctx, path); err != nil {
			return nil, err
		}
	}
	if n.lock, err = lockDirs(o.Config); err != nil {
		n.releaseFile()
		return nil, err
	}
	// From here on, an error has to close what was opened.
	if err := n.build(ctx); err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	return n, nil
}

// Builder returns the components of the node. Do not change it, except by
// [Builder.Claim] in makers of services.
func (n *Node) Builder() *Builder { return n.builder }

// Up returns a channel that is closed when the agent is ready and the local socket,
// if configured, is open.
func (n *Node) Up() <-chan struct{} { return n.up }

// Run runs the node until ctx ends, and returns when everything has ended: the agent
// first, its services after it. It returns the result of agent.Agent's Run. If another
// agent of the machine uses the same resources, the error is node.ErrClaimed, and
// nothing was started: see Settings.ClaimsDir. It may be called once; a second call
// returns agent.ErrStarted. Run does not wait for services that have not ended half a
// minute after the agent. The directories stay locked until these services have ended.
func (n *Node) Run(ctx context.Context) error {
	if !n.begun.CompareAndSwap(false, true) {
		return agent.ErrStarted
	}
	log := n.builder.Log
	if err := n.claim(ctx); err != nil {
		return errors.Join(err, n.close(ctx))
	}
	// The record is written before any pod starts: after a crash the next start has
	// to find the same runtime.
	if n.remember != nil {
		if err := n.remember(ctx); err != nil {
			return errors.Join(err, n.close(ctx))
		}
	}
	warnOfSize(ctx, int64(n.builder.Config.MaxPods), kernel.This, log)
	n.builder.host.move(ctx, n.builder.Config, log)
	// Services run on after ctx has ended: they report the termination of pods, and the runtime in
	// this process is one of them. They end after the agent.
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	var wg sync.WaitGroup
	defer func() {
		end()
		n.last(ctx, &wg)
	}()
	// Services start before the agent, which uses the runtime and the cluster.
	for _, s := range n.services {
		wg.Go(func() {
			err := s.run(beside)
			if err != nil {
				log.Error("service failed", zap.String("service", s.name), zap.Error(err))
			}
			if vital := (*vitalError)(nil); errors.As(err, &vital) {
				abort(fmt.Errorf("%s: %w", s.name, err))
			}
		})
	}
	wg.Go(func() { n.rise(beside) })
	if n.file != nil && n.builder.Config.ExitOnLockContention {
		wg.Go(func() {
			err := n.file.Wanted(beside)
			if beside.Err() == nil {
				log.Info("another program wants the lock file", zap.Error(err))
				abort(nil)
			}
		})
	}
	err := n.Agent.Run(ctx)
	// The agent returns nil when its ctx ends; the cause has the reason.
	if cause := context.Cause(ctx); err == nil && ctx.Err() != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	if closed(n.Ready()) {
		log.Info("agent ended; containers keep running")
	}
	return err
}

// endTimeout limits the wait for services at the end of Run. A service may hang on a disk that
// does not answer, and the node must end anyway.
const endTimeout = 30 * time.Second

// last waits for the services, and then closes the node. It returns after endTimeout
// in any case.
func (n *Node) last(ctx context.Context, services *sync.WaitGroup) {
	ended := make(chan struct{})
	// A goroutine, as it may hang with the services; it ends with them.
	go func() {
		services.Wait()
		_ = n.close(ctx)
		close(ended)
	}()
	late := time.NewTimer(endTimeout)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		n.builder.Log.Error("exiting although some services have not ended", zap.Duration("after", endTimeout))
	}
}

// rise closes the channel of Up when the agent and the socket are ready. If ctx ends
// before that, the channel stays open.
func (n *Node) rise(ctx context.Context) {
	for _, c := range append([]<-chan struct{}{n.Ready()}, n.opening...) {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
	close(n.up)
}

// Close releases the resources of New, for a node that is not run. After Run has
// been called it does nothing.
func (n *Node) Close() error {
	if !n.begun.CompareAndSwap(false, true) {
		return nil
	}
	return n.close(context.Background())
}

// close closes the client of the runtime, if New created it, and then unlocks the node's
// directories. It is called once, when nothing uses them any more.
func (n *Node) close(ctx context.Context) error {
	defer n.releaseFile() // last: a program that waits for the file needs the directories next
	defer n.lock.Release()
	if n.client == nil {
		return nil
	}
	return n.client.Close(context.WithoutCancel(ctx))
}

// releaseFile unlocks the lock file, if there is one.
func (n *Node) releaseFile() {
	if n.file != nil {
		n.file.Release()
	}
}

// closed reports whether a channel is closed. It does not block.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
