package resources

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/devicemgr"
)

// startTimeout is how long the start of a container waits for plugins to prepare its devices.
// After that, the start ends, and the pod is synced again when the devices are prepared. The
// number of pods that start at a time is limited, so a start must not wait long.
const startTimeout = time.Second

var (
	// errPreparing is the error of a start that no longer waits for the plugin.
	errPreparing    = errors.New("the device plugin has not prepared the devices yet (PreStartContainer)")
	errDevicesEnded = errors.New("the agent is stopping")
)

// starts has the calls to plugins that precede the start of a container. A call continues if the
// start no longer waits, and the next start waits for the same call.
type starts struct {
	ctx    context.Context // context of calls to plugins; ends with Run's
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu     sync.Mutex
	ended  bool
	all    map[types.UID]map[string]*start // by container
	failed map[types.UID]bool              // pods with a failed start that a change of devices may repair
}

// start is the call for one container.
type start struct {
	done chan struct{} // closed when err is set
	err  error
	left bool // nothing waits for the call any more
}

func newStarts() *starts {
	s := &starts{all: map[types.UID]map[string]*start{}, failed: map[types.UID]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// do makes a call for a container's start, or joins the running one, and waits for its end at
// most for startTimeout. If the call takes longer, do returns an error, and later is called at
// the end of the call.
func (s *starts) do(ctx context.Context, uid types.UID, container string, call func(context.Context) error, later func()) error {
	c, err := s.begin(uid, container, call, later)
	if err != nil {
		return err
	}
	t := time.NewTimer(startTimeout)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	case <-ctx.Done():
	}
	return s.result(ctx, c, uid, container)
}

func (s *starts) begin(uid types.UID, container string, call func(context.Context) error, later func()) (*start, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.all[uid][container]; c != nil {
		return c, nil
	}
	if s.ended {
		return nil, errDevicesEnded
	}
	c := &start{done: make(chan struct{})}
	if s.all[uid] == nil {
		s.all[uid] = map[string]*start{}
	}
	s.all[uid][container] = c
	s.calls.Go(func() {
		err := call(s.ctx) // its calls have deadlines
		s.mu.Lock()
		c.err = err
		close(c.done)
		left := c.left
		s.mu.Unlock()
		if left {
			later()
		}
	})
	return c, nil
}

// result returns the result of a call that has ended, or errPreparing.
func (s *starts) result(ctx context.Context, c *start, uid types.UID, container string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.done:
	default:
		c.left = true
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errPreparing
	}
	if s.all[uid][container] == c {
		delete(s.all[uid], container)
	}
	if len(s.all[uid]) == 0 {
		delete(s.all, uid)
	}
	delete(s.failed, uid)
	if mayCome(c.err) {
		s.failed[uid] = true
	}
	return c.err
}

// mayCome reports whether a change of the devices may repair a failed start. After any other error
// the pod keeps its back-off: the manager may have released the devices because of the error, which
// is itself a change of devices and would start the pod again at once.
func mayCome(err error) bool {
	if refused := (*devicemgr.PluginError)(nil); errors.As(err, &refused) && refused.Call == devicemgr.CallPreStart {
		return true // the next plugin may succeed
	}
	return errors.Is(err, devicemgr.ErrChanged) || errors.Is(err, devicemgr.ErrAway) || errors.As(err, new(*devicemgr.NotYetError)) ||
		errors.As(err, new(*devicemgr.InsufficientError)) || errors.As(err, new(*devicemgr.GoneError))
}

// fail records a pod with a failed start that a change of devices may repair.
func (s *starts) fail(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[uid] = true
}

// each calls fn for every recorded pod.
func (s *starts) each(fn func(types.UID)) {
	s.mu.Lock()
	uids := slices.Sorted(maps.Keys(s.failed))
	s.mu.Unlock()
	for _, uid := range uids {
		fn(uid)
	}
}

// forget drops the entries of the pods for which ended returns true.
func (s *starts) forget(ended func(types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(uid types.UID, _ map[string]*start) bool { return ended(uid) })
	maps.DeleteFunc(s.failed, func(uid types.UID, _ bool) bool { return ended(uid) })
}

// end cancels the running calls and waits for them. No other call begins.
func (s *starts) end() {
	s.cancel()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.calls.Wait()
}
