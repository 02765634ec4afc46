package criruntimetest

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

// enter applies the faults before a call's work. The function it returns
// applies those after it.
func (r *Runtime) enter(ctx context.Context, method, target string) (leave func() error, err error) {
	f := &r.faults
	c := Call{Method: method, Target: target, At: time.Now()}
	f.mu.Lock()
	f.calls = append(f.calls, c)
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
	return func() error {
		if after != nil {
			return after(c)
		}
		return nil
	}, nil
}
