package critest

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Call is one call of a method of a Runtime.
type Call struct {
	Method string
	// Target is the ID or the name of the object of the call.
	Target string
	At     time.Time
}

// faults has the simulated faults by method. The key "" is for every method.
type faults struct {
	mu     sync.Mutex
	calls  []Call
	made   int  // number of calls, including those that are not recorded
	lean   bool // calls are only counted, not recorded
	fail   map[string]error
	failN  map[string]int // number of calls that still fail; a method without an entry always fails
	delay  map[string]time.Duration
	hang   map[string]chan struct{}
	before func(Call) error
	after  func(Call) error
	dead   bool
}

func newFaults() faults {
	return faults{
		fail: map[string]error{}, failN: map[string]int{}, delay: map[string]time.Duration{},
		hang: map[string]chan struct{}{},
	}
}

// Fail makes every call of a method fail with err. If err is nil, the calls work again.
func (r *Runtime) Fail(method string, err error) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	delete(r.faults.failN, method)
	if err == nil {
		delete(r.faults.fail, method)
		return
	}
	r.faults.fail[method] = err
}

// FailNext makes the next n calls of a method fail.
func (r *Runtime) FailNext(method string, n int, err error) {
	r.Fail(method, err)
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.failN[method] = n
}

// Delay makes every call of a method take d longer.
func (r *Runtime) Delay(method string, d time.Duration) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.delay[method] = d
}

// Hang makes every call of a method wait until release is called, or its
// context ends.
func (r *Runtime) Hang(method string) (release func()) {
	ch := make(chan struct{})
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.hang[method] = ch
	return sync.OnceFunc(func() {
		r.faults.mu.Lock()
		delete(r.faults.hang, method)
		r.faults.mu.Unlock()
		close(ch)
	})
}

// Around sets functions that are called before and after each call. If one of them returns an
// error, the call returns it. An error of after is returned although the call has done its work, as
// if the answer was lost. Either function may be nil.
func (r *Runtime) Around(before, after func(Call) error) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.before, r.faults.after = before, after
}

// Die makes every call fail until Revive, and ends every event stream. Containers continue to run,
// as without containerd.
func (r *Runtime) Die() {
	r.faults.mu.Lock()
	r.faults.dead = true
	r.faults.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.streams {
		s.end()
	}
}

// Revive makes calls work again after Die.
func (r *Runtime) Revive() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.dead = false
}

// LoseStart simulates that the caller of the next StartContainer goes away during the call, which
// containerd 2.4 may not handle well: no process of the container runs, its state is exited, and
// neither the container nor its sandbox can be removed before FindLost.
func (r *Runtime) LoseStart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losesStart = true
}

// FindLost ends the effects of LoseStart, as a restart of containerd does.
func (r *Runtime) FindLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		c.lost = false
	}
}

// refusal returns the error of the removal of a container whose start was lost, and nil for any
// other container.
func (c *container) refusal() error {
	if !c.lost {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "failed to delete containerd container %q: cannot delete running task", c.id)
}

// SetClock sets the difference between the runtime's clock and the machine's, as if the clock was
// set between two calls. Existing objects keep their times.
func (r *Runtime) SetClock(off time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = off
}

// now returns the time by the runtime's clock. Runtime.mu is held.
func (r *Runtime) now() time.Time { return time.Now().Add(r.clock) }

// SetIPs sets the addresses of all sandboxes that are made from now on, primary first. Without
// addresses, each sandbox gets one of its own.
func (r *Runtime) SetIPs(ips ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ips = ips
}

// Pretend makes every call of the given methods return success and do nothing. A call that
// creates an object returns a new ID. If no method is given, all calls do their work again.
func (r *Runtime) Pretend(methods ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pretended = methods
}

// pretends reports whether Pretend was called for a method.
func (r *Runtime) pretends(method string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.pretended, method)
}

// Freeze makes lists and statuses show the current objects and states, whatever happens, until it
// is called with false.
func (r *Runtime) Freeze(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = nil
	if !on {
		return
	}
	v := view{sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
	for id, s := range r.sandboxes {
		old := *s
		v.sandboxes[id] = &old
	}
	for id, c := range r.containers {
		old := *c
		v.containers[id] = &old
	}
	r.frozen = &v
}

// Hide makes lists omit the objects for whose ID hidden returns true. Their statuses can still be
// read. If hidden is nil, lists omit nothing.
func (r *Runtime) Hide(hidden func(id string, sandbox bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden = hidden
}

// view has the sandboxes and containers that lists and statuses show.
type view struct {
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// shown returns the current view. Runtime.mu is held.
func (r *Runtime) shown() view {
	if r.frozen != nil {
		return *r.frozen
	}
	return view{sandboxes: r.sandboxes, containers: r.containers}
}

func (r *Runtime) hides(id string, sandbox bool) bool {
	return r.hidden != nil && r.hidden(id, sandbox)
}

// LoseEvents drops all events until it is called with false.
func (r *Runtime) LoseEvents(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losing = on
}

// NoEvents turns the runtime into one without an event stream.
func (r *Runtime) NoEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noEvents = true
}

// Calls returns the calls of the given methods so far. If no method is given, it returns all
// calls.
func (r *Runtime) Calls(methods ...string) []Call {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	var out []Call
	for _, c := range r.faults.calls {
		if len(methods) == 0 || slices.Contains(methods, c.Method) {
			out = append(out, c)
		}
	}
	return out
}

// ForgetCalls empties the list of calls.
func (r *Runtime) ForgetCalls() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.calls = nil
}

// Lean saves memory in long tests: calls are counted and not recorded, so that Calls returns none,
// and containers that are made from now on have no logs.
func (r *Runtime) Lean() {
	r.faults.mu.Lock()
	r.faults.lean, r.faults.calls = true, nil
	r.faults.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lean = true
}

// CallsMade returns the number of calls, including those that are not recorded.
func (r *Runtime) CallsMade() int {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.faults.made
}

// enter applies the faults that come before the work of a call. leave applies the faults that come
// after it.
func (r *Runtime) enter(ctx context.Context, method, target string) (leave func() error, err error) {
	f := &r.faults
	c := Call{Method: method, Target: target, At: time.Now()}
	f.mu.Lock()
	if f.made++; !f.lean {
		f.calls = append(f.calls, c)
	}
	if f.dead {
		f.mu.Unlock()
		return nil, status.Error(codes.Unavailable, "the runtime is down")
	}
	delay, hang, before, after := f.delay[method], f.hang[method], f.before, f.after
	fail := f.fail[method]
	if n, limited := f.failN[method]; limited {
		if n <= 0 {
			fail = nil
		}
		f.failN[method] = n - 1
	}
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if before != nil {
		if err := before(c); err != nil {
			return nil, err
		}
	}
	if fail != nil {
		return nil, fail
	}
	if after == nil {
		return noAfter, nil
	}
	return func() error { return after(c) }, nil
}

func noAfter() error { return nil }
