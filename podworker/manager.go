package podworker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	delays "github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/podworker/serial"
)

// Manager runs the workers of all pods. Its methods may be called from any
// goroutine and never wait for a syncer.
//
// The core decides what is done about a pod, and the Manager executes it. Package serial provides
// the workers with their goroutines, timers and contexts.
type Manager struct {
	cfg     Config
	met     *metrics
	workers *serial.Manager[types.UID, *pod]
	jitter  func(time.Duration) time.Duration

	// core is guarded by the lock of workers.
	core    *core
	synced  bool            // SyncKnownPods was called
	stopped bool            // Run's context has ended
	ctx     context.Context // context of Run
}

// firstSyncLimit is how long a first sync counts against Config.FirstSyncs. A sync that takes
// longer usually waits for a registry or a runtime that hangs, and does not load this machine.
const firstSyncLimit = 10 * time.Second

// New checks cfg and returns a Manager, which calls the Syncer only during Run. Updates may come
// before Run; Run handles them.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	m := &Manager{cfg: cfg, met: met, jitter: jitter, core: newCore(cfg.Idle)}
	m.workers, err = serial.New(serial.Config[types.UID, *pod]{
		Handle: m.handle, Called: m.called, Begin: m.begin, End: m.end,
		Limit: cfg.FirstSyncs,
		// Only first syncs start containers in numbers; ends of pods never wait for a
		// place.
		Limited: func(c *serial.Call[types.UID, *pod]) bool {
			return c.Calls == 0 && c.Update.stage == live
		},
		SlotTimeout: firstSyncLimit,
	})
	if err != nil {
		return nil, fmt.Errorf("podworker: %w", err)
	}
	return m, nil
}

// Run syncs pods until ctx ends. Then it cancels the calls in flight, and returns nil when
// all have returned. Pods continue to run. Run may be called once.
func (m *Manager) Run(ctx context.Context) error {
	// Pods that were held are let go in one go with the opening: no update comes
	// in between.
	m.workers.Lock()
	m.ctx, m.core.open = ctx, true
	m.feedAll(opened{})
	m.workers.Unlock()

	// If ctx has ended, stop has begun in its own goroutine: Run returns only
	// after it, so that every channel is closed by then.
	closed := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(closed)
		m.stop()
	})
	err := m.workers.Run(ctx)
	if !unwatch() {
		<-closed
	}
	return err
}

// stop closes the Done channels of all pods, since the workers have stopped. From then on Update
// closes the Done channel of each update at once.
func (m *Manager) stop() {
	m.workers.Lock()
	defer m.workers.Unlock()
	m.stopped = true
	m.feedAll(shut{})
}

// feedAll applies an event to every pod. It is called with the workers locked.
func (m *Manager) feedAll(e event) {
	now := time.Now()
	for _, p := range m.core.pods {
		m.apply(m.core.feed(p, e, now))
	}
}

// Update passes u to the pod's worker. A new pod gets a worker. Update returns at once; the Syncer
// is called later, with this update or a newer one.
func (m *Manager) Update(u Update) {
	uid, ok := identify(&u)
	if !ok {
		m.cfg.Log.Error("ignored invalid update: want a pod, or a kill of a pod that only the runtime knows",
			zap.Stringer("type", u.Type))
		closeDone(u.Kill)
		return
	}
	m.workers.Lock()
	defer m.workers.Unlock()
	if m.stopped {
		closeDone(u.Kill)
		return
	}
	m.apply(m.core.update(uid, u, time.Now()))
}

// identify checks that an update is valid, and returns the UID of its pod. ok is false for an
// invalid update.
func identify(u *Update) (uid types.UID, ok bool) {
	if u.Pod != nil {
		u.RuntimePod = nil
		return u.Pod.UID, true
	}
	if u.RuntimePod == nil || u.Type != KillUpdate {
		return "", false
	}
	return u.RuntimePod.UID, true
}

// closeDone closes the Done channel of an update that no pod accepts.
func closeDone(k *KillOptions) {
	if k != nil && k.Done != nil {
		close(k.Done)
	}
}

// Resync requests a sync of the pod with its last spec, and reports whether the pod has a
// worker. A back-off after an error ends.
func (m *Manager) Resync(uid types.UID) bool {
	m.workers.Lock()
	defer m.workers.Unlock()
	p, ok := m.core.pods[uid]
	if ok {
		m.apply(m.core.feed(p, resynced{}, time.Now()))
	}
	return ok
}

// SyncKnownPods compares the workers with the desired pods. It terminates the other pods, drops
// the records of those that have finished, and returns the stages of the remaining ones. It does
// not wait for the terminations. From the first call on, a pod without a record counts as
// completely cleaned up.
func (m *Manager) SyncKnownPods(desired []*v1.Pod) map[types.UID]Kind {
	want := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		want[p.UID] = true
	}
	m.workers.Lock()
	defer m.workers.Unlock()
	m.synced = true
	known := make(map[types.UID]Kind, len(m.core.pods))
	now := time.Now()
	for uid, p := range m.core.pods {
		if !want[uid] {
			m.apply(m.core.feed(p, unwanted{}, now))
		}
		// The step may have dropped the pod, or begun another life of its UID.
		if m.core.pods[uid] == p {
			known[uid] = p.stage.kind()
		}
	}
	return known
}

// apply executes the core's effects, except for call and next: the methods begin and end execute
// those. It is called with the workers locked and does not block.
func (m *Manager) apply(effects []podEffect) {
	workers := m.workers.Locked()
	for _, of := range effects {
		switch e := of.effect.(type) {
		case deliver:
			workers.Update(of.pod.uid, of.pod)
			if e.interrupt {
				workers.Interrupt(of.pod.uid)
			}
		case again:
			if e.interrupt {
				workers.Interrupt(of.pod.uid)
			} else {
				workers.Again(of.pod.uid)
			}
		case forget:
			workers.Forget(of.pod.uid)
		case over:
			m.cfg.Finished(of.pod.uid)
		// The core hands out each channel once, so that none is closed twice.
		case notify:
			close(e.done)
		case countBegin:
			m.met.containers.Observe(float64(e.containers))
		case countStart:
			m.met.start.Observe(e.age.Seconds())
		case countGone:
			m.met.took(Terminated, SyncUpdate, 0)
		}
	}
}

// workerCall is one call of a pod's worker. Its field Update is the pod itself. Updates of a pod
// never queue in the worker, since core has the pod's state.
type workerCall = serial.Call[types.UID, *pod]

// begin prepares the pod's next call in p.turn. ok is false if there is no call, because the pod
// has finished meanwhile. It is called with the workers locked.
func (m *Manager) begin(c *workerCall) (ok bool) {
	effects := m.core.feed(c.Update, begun{}, c.Start)
	m.apply(effects)
	return slices.ContainsFunc(effects, func(of podEffect) bool { return of.effect == call{} })
}

// handle calls the Syncer for the pod's stage. It runs in the worker's goroutine without a lock;
// the worker recovers from a panic. p.turn does not change during the call: only the event begun
// writes it, and calls for a pod never overlap.
func (m *Manager) handle(ctx context.Context, c *workerCall) (_ serial.Next, err error) {
	s, p := m.cfg.Syncer, c.Update
	t := &p.turn
	switch {
	case t.kind == Terminated:
		err = s.SyncTerminatedPod(ctx, t.work)
	case t.kind == Terminating && t.work.RuntimePod != nil:
		err = s.SyncTerminatingRuntimePod(ctx, t.work)
	case t.kind == Terminating:
		err = s.SyncTerminatingPod(ctx, t.work)
	default:
		p.outcome, err = s.SyncPod(ctx, t.work)
	}
	return serial.Rest(), err
}

// called counts a call in the metrics. It runs in the worker's goroutine, before the lock is
// taken for end.
func (m *Manager) called(c *workerCall, r *serial.Result) {
	t := &c.Update.turn
	m.met.took(t.kind, t.work.Type, r.At.Sub(c.Start))
}

// end passes the result of a call to the core, and sets r.Next to the worker's next step. It is
// called with the workers locked.
func (m *Manager) end(c *workerCall, r *serial.Result) {
	p := c.Update
	// Taken before the outcome is cleared: the next call must not see it, and it
	// holds on to memory of the syncer.
	after, again := p.outcome.After, p.outcome.Again
	effects := m.core.feed(p, returned{p.outcome, r.Err}, r.At)
	p.outcome = Outcome{}
	m.apply(effects)
	how := atRest
	for _, of := range effects {
		if e, ok := of.effect.(next); ok && of.pod == p {
			how = e.then
		}
	}
	m.logPanic("syncer panicked", r.Err)
	switch {
	case how == resync && again > 0 && again < m.cfg.Resync:
		r.Next = serial.Again(again, "next step")
	case how == resync:
		r.Next = serial.Again(m.jitter(m.cfg.Resync), "resync")
	case how == nextCall:
		r.Next = serial.Again(0, "")
	// An interrupted call failed because it was told to stop; the update that did
	// so leads to the next call at once, without a back-off.
	case how == retry && !r.Interrupted && m.ctx.Err() == nil:
		r.Next = m.failed(p, r, c.Failures+1)
	}
	// After the lock has been given back: the syncer may call the Manager from it.
	if after != nil {
		r.Next = r.Next.Then(func() { m.after(after) })
	}
}

// after calls fn, the function After of an Outcome. If fn panics, after recovers and logs the
// panic.
func (m *Manager) after(fn func()) {
	var err error
	defer func() { m.logPanic("syncer panicked after a sync", err) }()
	defer serial.Recover(&err)
	fn()
}

// logPanic logs a panic with its stack, which the error's text does not have.
// Errors of other kinds are logged elsewhere.
func (m *Manager) logPanic(message string, err error) {
	if p, ok := err.(*serial.PanicError); ok { //nolint:errorlint // of Recover, as it is
		m.cfg.Log.Error(message, zap.String("panic", fmt.Sprint(p.Value)), zap.ByteString("stack", p.Stack))
	}
}

// failed logs a failed call, and returns when it is tried again. It logs the 1st, 2nd, 4th, 8th and
// so on of the failures in a row as warnings, so that a pod that fails for days does not fill the
// log. A call that fails since it still has to wait for the time that the failure before has named
// is not another failure.
func (m *Manager) failed(p *pod, r *serial.Result, failures int) serial.Next {
	delay, reason := m.retry(failures, r.Err, r.At)
	log := m.cfg.Log.Debug
	if failures == 1 {
		p.failures = 0
	}
	if until, waits := retryAt(r.Err); !waits || !until.Equal(p.until) {
		p.until = until
		if p.failures++; p.failures&(p.failures-1) == 0 { // the 1st, 2nd, 4th, 8th ...
			log = m.cfg.Log.Warn
		}
	}
	log("pod sync failed", zap.Int("failures", failures), zap.String("pod", p.namespace+"/"+p.name), zap.String("uid", string(p.uid)),
		zap.Stringer("stage", p.turn.kind), zap.Duration("retry", delay), zap.String("reason", reason), zap.Error(r.Err))
	return serial.Again(delay, reason)
}

// jitter returns a random duration from d to 1.5 d, as in the kubelet. Without it, pods that were
// started together would be synced together for ever.
func jitter(d time.Duration) time.Duration { return delays.Jitter(d, 0.5) }

// retry returns how long to wait after an error, and the reason of the wait. failures is the
// number of failures in a row, this one included. If the error is a RetryAter, the wait lasts
// until the time of its RetryAt, but at most Config.Resync: a wrong time must not stop the pod's
// syncs.
func (m *Manager) retry(failures int, err error, now time.Time) (time.Duration, string) {
	reason := reasonOf(err)
	// The network comes up for all pods at once, and soon after a start.
	if errors.Is(err, ErrNetworkNotReady) {
		return m.jitter(networkBackoff), "NetworkNotReady"
	}
	if at, ok := retryAt(err); ok {
		d := at.Sub(now)
		if d <= 0 && failures > 1 {
			d = firstBackoff // a time that has passed is no leave to spin
		}
		return min(max(d, 0), m.cfg.Resync), reason
	}
	b := serial.Backoff{First: firstBackoff, Max: maxBackoff}
	return m.jitter(b.Delay(failures)), reason
}

// RetryAter is an error of a [Syncer] with a time for the next try. The earliest time among
// all wrapped errors is used, but no later than Config.Resync from now. A zero time is ignored.
type RetryAter interface {
	RetryAt() time.Time
}

// Reasoner is an error of a [Syncer] with a reason for statuses and metrics, such as
// ImagePullBackOff. If an error wraps several Reasoners, the outermost is used.
type Reasoner interface {
	Reason() string
}

// walk calls visit for err and all errors that it wraps, outer errors first, and joined errors in
// their order.
func walk(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch w := err.(type) { //nolint:errorlint // the tree itself is walked
	case interface{ Unwrap() error }:
		walk(w.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			walk(e, visit)
		}
	}
}

// retryAt returns the earliest time for the next try that err or an error wrapped in it names.
func retryAt(err error) (at time.Time, ok bool) {
	walk(err, func(e error) {
		if b, is := e.(RetryAter); is {
			if t := b.RetryAt(); !t.IsZero() && (!ok || t.Before(at)) {
				at, ok = t, true
			}
		}
	})
	return at, ok
}

// reasonOf returns the reason of the outermost error in err that has one: Panic for a panic, and
// FailedSync if none has.
func reasonOf(err error) string {
	reason := ""
	walk(err, func(e error) {
		if reason != "" {
			return
		}
		switch n := e.(type) { //nolint:errorlint // walk unwraps
		case Reasoner:
			reason = n.Reason()
		case *serial.PanicError:
			reason = "Panic"
		}
	})
	if reason == "" {
		return "FailedSync"
	}
	return reason
}
