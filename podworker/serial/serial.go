package serial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/slots"
)

// Call is the argument of a handler. It belongs to the Manager and is valid until the handler
// returns. Update is shared with the caller of [Manager.Update].
type Call[K comparable, U any] struct {
	Key K
	// Update is the newest update of the key. Fresh reports that this call delivers it for the
	// first time. It is false for a retry and for a call that [Again], [Enter], [Manager.Again]
	// or [Manager.Interrupt] asked for.
	Update U
	Fresh  bool
	// Stage is the stage of the key; 0 until a handler returns another one.
	Stage Stage
	// Calls is the number of earlier calls for this key. Failures is the number of failed calls
	// in a row before this one, or 0 if the last one succeeded.
	Calls, Failures int
	// Start is when the call began.
	Start time.Time
}

// Result is the result of a call.
type Result struct {
	Next Next
	Err  error
	// Interrupted reports that the call failed because an urgent update or [Manager.Interrupt]
	// cancelled it. It does not count as a failure, and causes no delay.
	Interrupted bool
	At          time.Time // time when the call ended
}

// Config holds what a Manager needs. Handle is required; the zero value of
// every other field means the default named beside it.
//
// Merge, Interrupts, Limited, Begin and End are hooks: they are called with
// the Manager locked. They must be quick, and may call only the methods of
// [Manager.Locked].
type Config[K comparable, U any] struct {
	// Handle does the work. It should return soon after ctx ends. ctx has the values of Run's
	// context and ends with it, but has no deadline. Calls for one key never overlap; those for
	// different keys do.
	Handle func(ctx context.Context, c *Call[K, U]) (Next, error)
	// Merge merges two updates of which neither has been delivered into one; next is the later
	// one. If it is nil, next replaces waiting.
	Merge func(waiting, next U) U
	// Interrupts reports whether the update next cancels the call in flight, whose update is
	// running. If it is nil, no update does.
	Interrupts func(running, next U) bool

	// Limit is how many calls may be in flight at a time. If it is 0, there is no limit.
	Limit int
	// Limited reports whether a call counts towards Limit and waits if the limit is reached. The
	// call's Start is not set yet. If Limited is nil, every call counts.
	Limited func(c *Call[K, U]) bool
	// SlotTimeout is how long a call counts towards Limit, so that a call that hangs does not hold
	// up the others. If SlotTimeout is 0, a call counts until it returns.
	SlotTimeout time.Duration

	// Backoff is the delay before a retry, unless the handler names one.
	Backoff Backoff
	// OnError is called after every failed call, with the number of failures in a row and the
	// delay before the retry. It is called by the key's goroutine, without a lock, before the
	// key's next call. If OnError is nil, nothing is called.
	OnError func(key K, err error, failures int, retry time.Duration)

	// Called is called after each call of Handle by the key's goroutine, without a lock. It is meant
	// for metrics.
	Called func(c *Call[K, U], r *Result)

	// Begin is called before each call of Handle, and reports whether the call is made. If Begin
	// returns false, the pending update is dropped. If Begin is nil, every call is made.
	Begin func(c *Call[K, U]) bool
	// End is called when a call has ended, and may change r.Next.
	End func(c *Call[K, U], r *Result)
}

func (c Config[K, U]) withDefaults() Config[K, U] {
	if c.Merge == nil {
		c.Merge = func(_, next U) U { return next }
	}
	if c.Interrupts == nil {
		c.Interrupts = func(_, _ U) bool { return false }
	}
	if c.Limited == nil {
		c.Limited = func(*Call[K, U]) bool { return true }
	}
	if c.Begin == nil {
		c.Begin = func(*Call[K, U]) bool { return true }
	}
	if c.Called == nil {
		c.Called = func(*Call[K, U], *Result) {}
	}
	if c.End == nil {
		c.End = func(*Call[K, U], *Result) {}
	}
	c.Backoff = c.Backoff.withDefaults()
	return c
}

func (c Config[K, U]) validate() error {
	var errs []error
	if c.Handle == nil {
		errs = append(errs, errors.New("Config.Handle is required"))
	}
	if c.Limit < 0 {
		errs = append(errs, fmt.Errorf("Config.Limit is %d; want 0 or more", c.Limit))
	}
	if c.SlotTimeout < 0 {
		errs = append(errs, fmt.Errorf("field Config.SlotTimeout is %v; want 0 or more", c.SlotTimeout))
	}
	return errors.Join(append(errs, c.Backoff.validate())...)
}

// Manager runs the workers of all keys. Its methods may be called from any goroutine, also by
// handlers. Only Run waits for handlers.
type Manager[K comparable, U any] struct {
	cfg Config[K, U]

	mu      sync.Mutex
	workers map[K]*worker[K, U]
	slots   *slots.Queue[*worker[K, U]]
	ctx     context.Context // context of Run; nil before Run is called
	values  context.Context // ctx without its cancellation
	stopped bool            // Run's context has ended
	working int             // number of running goroutines of workers
	idle    chan struct{}   // closed when Run's context has ended and no goroutine of a worker runs
}

// New checks cfg and returns a Manager, which calls handlers only during Run. Updates may come
// before Run and are delivered when Run is called.
func New[K comparable, U any](cfg Config[K, U]) (*Manager[K, U], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("serial: %w", err)
	}
	m := &Manager[K, U]{cfg: cfg, workers: map[K]*worker[K, U]{}, idle: make(chan struct{})}
	m.slots = slots.New(slots.Config[*worker[K, U]]{Slots: cfg.Limit, Limit: cfg.SlotTimeout, Lock: &m.mu, Turn: m.turn})
	return m, nil
}

// ErrRunning is returned by a second call of [Manager.Run].
var ErrRunning = errors.New("serial: Run was called before")

// Run delivers updates until ctx ends, cancels the calls in flight, and
// returns nil when all have returned. It may be called once.
func (m *Manager[K, U]) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ctx != nil {
		m.mu.Unlock()
		return ErrRunning
	}
	m.ctx, m.values = ctx, context.WithoutCancel(ctx)
	for _, w := range m.workers {
		m.wake(w)
	}
	m.mu.Unlock()

	<-ctx.Done()
	m.mu.Lock()
	m.stopped = true
	for _, w := range m.workers {
		w.alarm.stop()
		if w.cancel != nil {
			w.cancel(context.Cause(ctx))
		}
		m.slots.Release(w.slot)
	}
	m.rest()
	m.mu.Unlock()
	<-m.idle
	return nil
}

// rest makes Run return if Run's context has ended and no goroutine of a worker runs.
func (m *Manager[K, U]) rest() {
	if m.stopped && m.working == 0 {
		close(m.idle)
	}
}

// over reports whether Run's context has ended, so that no further call may begin.
func (m *Manager[K, U]) over() bool { return m.stopped || m.ctx.Err() != nil }

// Load returns how many calls count towards Config.Limit, the limit, and how many calls wait for
// it.
func (m *Manager[K, U]) Load() (running, limit, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slots.Load()
}
