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

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/node"
)

// Node is a whole node: an agent with its parts, and the services beside it. It
// answers what a person at the machine asks (local.Handler). All methods may be
// called from any goroutine.
type Node struct {
	*agent.Agent

	options  Options
	endpoint string // of the runtime; "": it is somebody else's
	builder  *Builder
	file     *node.FileLock // nil: there is no lock file
	lock     *node.DirLock
	client   *cri.Client                 // nil: the runtime is somebody else's, or local
	local    *LocalRuntime               // nil: it is not in this process
	remember func(context.Context) error // records the runtime before any pod runs on it; nil: it is on record
	services []service
	opening  []<-chan struct{} // closed when what others wait for is open
	onSocket map[string]http.Handler
	up       chan struct{}
	// begun is set by Run or Close, whichever comes first: the other one returns at
	// once.
	begun atomic.Bool
}

// New makes a Node at rest. See the package's documentation for what it looks at,
// and for the order. ctx bounds it alone. The node's directories are locked from the
// beginning until the end of Run, or until Close: the error is node.ErrLocked if
// another agent has one of them, and nothing in them has been touched then. A lock
// file comes before them, and is waited for until ctx ends.
func New(ctx context.Context, o Options) (*Node, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	n := &Node{options: o, up: make(chan struct{})}
	var err error
	// Before the directories: the agent that has them gives the file back last.
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
	// From here on there are things to close.
	if err := n.build(ctx); err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	return n, nil
}

// Builder is what the node was made with. It must not be changed, but for
// [Builder.Claim] by makers of services.
func (n *Node) Builder() *Builder { return n.builder }

// Up is closed when the agent is ready, and the local socket, if there is to be
// one, has been opened.
func (n *Node) Up() <-chan struct{} { return n.up }

// Run runs the node until ctx ends, and returns when everything of it has ended:
// the agent first, its services after it. It returns what agent.Agent's Run does.
// The error is a node.ErrClaimed, before anything has begun, if another agent of the
// machine uses the same: see Settings.ClaimsDir.
// It may be called once: agent.ErrStarted is what a second call returns. Services that
// hang half a minute after the agent's end are abandoned, with the lock.
func (n *Node) Run(ctx context.Context) error {
	if !n.begun.CompareAndSwap(false, true) {
		return agent.ErrStarted
	}
	log := n.builder.Log
	if err := n.claim(ctx); err != nil {
		return errors.Join(err, n.close(ctx))
	}
	// The record comes before any pod: after a crash the next start has to find the
	// same runtime.
	if n.remember != nil {
		if err := n.remember(ctx); err != nil {
			return errors.Join(err, n.close(ctx))
		}
	}
	n.builder.host.move(ctx, n.builder.Config, log)
	// Services outlive ctx: they report the end of pods, and the runtime in the
	// process is one of them. They end when the agent has.
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	var wg sync.WaitGroup
	defer func() {
		end()
		n.last(ctx, &wg)
	}()
	// Services begin before the agent, so that the runtime and the cluster are
	// there when it asks.
	for _, s := range n.services {
		wg.Go(func() {
			err := s.run(beside)
			if err != nil {
				log.Error("service has failed", zap.String("service", s.name), zap.Error(err))
			}
			// Without the runtime in the process no pod can be run, nor ended.
			if s.vital && err != nil {
				abort(fmt.Errorf("%s: %w", s.name, err))
			}
		})
	}
	wg.Go(func() { n.rise(beside) })
	if n.file != nil && n.builder.Config.ExitOnLockContention {
		wg.Go(func() {
			err := n.file.Wanted(beside)
			if beside.Err() == nil {
				log.Info("lock file is wanted by another program", zap.Error(err))
				abort(nil)
			}
		})
	}
	err := n.Agent.Run(ctx)
	// The agent ends without an error when its ctx does; why that ended is known by
	// the cause alone.
	if cause := context.Cause(ctx); err == nil && ctx.Err() != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	if closed(n.Ready()) {
		log.Info("agent ends; containers keep running")
	}
	return err
}

// endPatience is how long Run's end waits for services that hang, such as on a disk
// that does not answer: a node can always be ended.
const endPatience = 30 * time.Second

// last closes the node when its services have ended.
func (n *Node) last(ctx context.Context, services *sync.WaitGroup) {
	ended := make(chan struct{})
	// A goroutine of its own, as it may hang with the services; it ends with them.
	go func() {
		services.Wait()
		_ = n.close(ctx)
		close(ended)
	}()
	late := time.NewTimer(endPatience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		n.builder.Log.Error("abandoned services that hang", zap.Duration("after", endPatience))
	}
}

// rise closes Up when what it stands for is there. It never closes it if ctx ends
// before.
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

// Close gives back what New has taken, of a node that is not to be run. After Run
// has been called it does nothing.
func (n *Node) Close() error {
	if !n.begun.CompareAndSwap(false, true) {
		return nil
	}
	return n.close(context.Background())
}

// close closes the client of the runtime, if it is the node's own, and lets other
// agents have the node's directories. It is called once, when nothing else uses
// either. The client goes first, the locks after it.
func (n *Node) close(ctx context.Context) error {
	defer n.releaseFile() // last: who waits for it wants the directories next
	defer n.lock.Release()
	if n.client == nil {
		return nil
	}
	return n.client.Close(context.WithoutCancel(ctx))
}

// releaseFile lets other programs have the lock file, if there is one.
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
