package serial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/slots"
)

// Call is what a handler is called with. It is the Manager's, and valid until
// the handler returns; Update is shared with whoever gave it to
// [Manager.Update].
type Call[K comparable, U any] struct {
	Key K
	// Update is the newest update of the key. Fresh is false if it was
	// delivered before and the call is a retry or was asked for by
	// [Again], [Enter], [Manager.Again] or [Manager.Interrupt].
	Update U
	Fresh  bool
	// Stage is where the key stands; 0 until a handler says otherwise.
	Stage Stage
	// Calls counts the calls of this key before this one, and Failures
	// those of them, up to the last, that failed in a row.
	Calls, Failures int
	// Start is when the call began.
	Start time.Time
}

// Result is what came of a call.
type Result struct {
	Next Next
	Err  error
	// Interrupted reports that the call failed because it was to make way: it
	// is not counted as a failure, and there is no delay.
	Interrupted bool
	At          time.Time // when it ended
}

// Config holds what a Manager needs. Handle is required; the zero value of
// every other field means the default named beside it.
//
// Merge, Interrupts, Limited, Begin and End are hooks: they are called with
// the Manager locked. They must be quick, and may call only the methods of
// [Manager.Locked].
type Config[K comparable, U any] struct {
	// Handle does the work. It should return soon after ctx ends, which has
	// the values of Run's context and ends with it, but no deadline. Calls
	// for one key never overlap; those for different keys do.
	Handle func(ctx context.Context, c *Call[K, U]) (Next, error)
	// Merge makes one update of two that came one after the other while
	// neither had been delivered; the later one replaces the earlier.
	Merge func(waiting, next U) U
	// Interrupts reports whether an update cancels the call in flight, which
	// was made with running; never.
	Interrupts func(running, next U) bool

	// Limit is how many calls may be in flight at a time; any number.
	Limit int
	// Limited reports whether a call counts towards Limit and waits for it;
	// every call does. Start is not set yet.
	Limited func(c *Call[K, U]) bool
	// Patience is how long a call counts towards Limit, so that one that
	// hangs does not hold up the others; as long as it runs.
	Patience time.Duration

	// Backoff is the delay before a retry, unless the handler names one.
	Backoff Backoff
	// OnError is told of every call that failed, with the failures in a row
	// and the delay before the retry; nobody is. It is called by the key's
	// goroutine, without a lock, before the key's next call.
	OnError func(key K, err error, failures int, retry time.Duration)

	// Called is called after each call of Handle by the key's goroutine, without
	// a lock: the place for figures.
	Called func(c *Call[K, U], r *Result)

	// Begin is called when a call is about to begin, and reports whether it
	// shall; it always does. If not, what there was to deliver is dropped.
	Begin func(c *Call[K, U]) bool
	// End is called when a call has ended, and may change what is next.
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
	if c.Patience < 0 {
		errs = append(errs, fmt.Errorf("field Config.Patience is %v; want 0 or more", c.Patience))
	}
	return errors.Join(append(errs, c.Backoff.validate())...)
}

// Manager runs the workers of all keys. Its methods may be called from any
// goroutine, handlers included, and never wait for a handler; only Run does.
type Manager[K comparable, U any] struct {
	cfg Config[K, U]

	mu      sync.Mutex
	workers map[K]*worker[K, U]
	slots   *slots.Queue[*worker[K, U]]
	ctx     context.Context // Run's; nil before
	values  context.Context // ctx without its end
	stopped bool            // Run's context has ended
	working int             // goroutines of workers
	idle    chan struct{}   // closed when stopped and none works
}

// New checks cfg and returns a Manager at rest. Updates may come before Run;
// they are delivered once it is called.
func New[K comparable, U any](cfg Config[K, U]) (*Manager[K, U], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("serial: %w", err)
	}
	m := &Manager[K, U]{cfg: cfg, workers: map[K]*worker[K, U]{}, idle: make(chan struct{})}
	m.slots = slots.New(slots.Config[*worker[K, U]]{Slots: cfg.Limit, Limit: cfg.Patience, Lock: &m.mu, Turn: m.turn})
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

// rest lets Run end once no worker does anything.
func (m *Manager[K, U]) rest() {
	if m.stopped && m.working == 0 {
		close(m.idle)
	}
}

// over reports whether Run ends.
func (m *Manager[K, U]) over() bool { return m.stopped || m.ctx.Err() != nil }

// Load returns how many keys are in their limited first call, how many may be (Config.Limit), and how many wait.
func (m *Manager[K, U]) Load() (running, limit, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slots.Load()
}
