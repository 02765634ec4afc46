package critest

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Call is one call that a runtime got.
type Call struct {
	Method string
	// Target is the id, or the name, of what it was about.
	Target string
	At     time.Time
}

// faults are what goes wrong, by method; "" means every method.
type faults struct {
	mu     sync.Mutex
	calls  []Call
	made   int  // calls, those that are not kept included
	lean   bool // calls are counted alone
	fail   map[string]error
	failN  map[string]int // how often; absent means always
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

// Fail makes every call of a method fail with err, or with nil work again.
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

// Delay makes every call of a method take that much longer.
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

// Around calls before each call and after it; an error of either is the
// call's. That of after comes when the call has done its work, as when an
// answer is lost. Either may be nil.
func (r *Runtime) Around(before, after func(Call) error) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.before, r.faults.after = before, after
}

// Die makes every call fail, and every event stream end, until Revive. What
// runs keeps running, as it does without containerd.
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

// Revive ends Die.
func (r *Runtime) Revive() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.dead = false
}

// LoseStart has the next start of a container lose its caller, as containerd
// 2.4 may when the agent dies meanwhile: nothing of the container runs, it shows
// as exited, and neither it nor its sandbox can be removed before FindLost.
func (r *Runtime) LoseStart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losesStart = true
}

// FindLost ends what LoseStart did, as a restart of containerd does.
func (r *Runtime) FindLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		c.lost = false
	}
}

// refusal is the answer to the removal of a container.
func (c *container) refusal() error {
	if !c.lost {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "failed to delete containerd container %q: cannot delete running task", c.id)
}

// SetClock puts the runtime's clock that far from the machine's, as when that
// was set between two calls. What is there keeps its times.
func (r *Runtime) SetClock(off time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = off
}

// now is what the runtime takes for the time. Runtime.mu is held.
func (r *Runtime) now() time.Time { return time.Now().Add(r.clock) }

// SetIPs sets the addresses of sandboxes that are made from now on, primary
// first; without any, each has one of its own.
func (r *Runtime) SetIPs(ips ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ips = ips
}

// Pretend makes every call of those methods answer with success and do
// nothing. What is made that way has an ID of its own. Without methods all
// calls do their work again.
func (r *Runtime) Pretend(methods ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pretended = methods
}

// pretends reports whether a method is to do nothing.
func (r *Runtime) pretends(method string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.pretended, method)
}

// Freeze makes lists and statuses show for ever what there is now, whatever
// happens, until it is called with false.
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

// Hide leaves out of lists what hidden reports of its ID; statuses tell of it
// nevertheless. With nil all is listed.
func (r *Runtime) Hide(hidden func(id string, sandbox bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden = hidden
}

// view is what lists and statuses show.
type view struct {
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// shown is the view at the moment. Runtime.mu is held.
func (r *Runtime) shown() view {
	if r.frozen != nil {
		return *r.frozen
	}
	return view{sandboxes: r.sandboxes, containers: r.containers}
}

func (r *Runtime) hides(id string, sandbox bool) bool {
	return r.hidden != nil && r.hidden(id, sandbox)
}

// LoseEvents drops events while on.
func (r *Runtime) LoseEvents(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losing = on
}

// NoEvents makes the runtime one without an event stream.
func (r *Runtime) NoEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noEvents = true
}

// Calls lists the calls so far of those methods, or of all.
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

// ForgetCalls starts the list of calls anew.
func (r *Runtime) ForgetCalls() {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.calls = nil
}

// Lean has the runtime forget what a long life does not need: calls are counted and not
// kept, so that Calls reports none, and containers that are made from now on have no
// logs.
func (r *Runtime) Lean() {
	r.faults.mu.Lock()
	r.faults.lean, r.faults.calls = true, nil
	r.faults.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lean = true
}

// CallsMade is how many calls were made, those included that are not kept.
func (r *Runtime) CallsMade() int {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	return r.faults.made
}

// enter applies the faults before a call's work. The function it returns
// applies those after it.
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
