package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// attempts is the maximum number of attempts in a round while they end with errors (the
// kubelet's value).
const attempts = 3

// EngineConfig configures an Engine. The zero value of every field means the
// default named beside it.
type EngineConfig struct {
	Parallel          int // limit of running checks; the default is 256
	ParallelExpensive int // separate limit of expensive checks; the default is 32
	// Late is called with the delay of each check's start. It is called without
	// locks held.
	Late func(time.Duration)
}

// Spec describes one probe.
type Spec struct {
	Timing
	// Check makes the check. Its context ends Slack after Timeout. Slack is for checks that
	// enforce Timeout themselves, such as commands in a container: if the context ends first, it
	// is the runtime that did not answer, and not the command.
	Check Func
	Slack time.Duration
	// Expensive checks are limited by EngineConfig.ParallelExpensive.
	Expensive bool
	// Group is the owner of the probe, such as a pod. Waiting groups get slots in
	// turn, and a group can have a quarter of the slots at most. A check that runs
	// longer than a second gives its slot to others and continues. Probes without a
	// Group share one turn, without that limit, and keep their slots.
	Group string
	// Done is called with every round, in order. The next round does not begin before Done
	// returns. If Done returns false, the probe stops. Done is not called for a round that Stop
	// or the end of Run cancelled, but a call may still be under way when Stop returns. Done may
	// call the Engine.
	Done func(Round) (again bool)
}

// Round is the result of one round of a probe.
type Round struct {
	Outcome Outcome
	Output  string // at most MaxOutput bytes
	// Err is the error of the last attempt. A round with an error counts neither as a success nor as
	// a failure. The text of Err has at most MaxOutput bytes.
	Err error
	// Verdict is Success or Failure if this outcome and the ones before it were equal, and at
	// least as many as the threshold. Otherwise it is Unknown.
	Verdict Outcome
	// Extra reports whether the round is an additional check of FastStart.
	Extra bool
	// Errors is the number of rounds in a row that ended with an error.
	Errors int
	Took   time.Duration
}

// Engine runs the checks of probes. Its methods may be called from any goroutine,
// before, during and after Run, and do not wait for checks.
type Engine struct {
	cfg  EngineConfig
	wake chan struct{}

	mu     sync.Mutex
	ctx    context.Context // context of Run; nil before Run is called
	ended  bool
	agenda agenda
	lanes  [2]*lane // plain and expensive
	wg     sync.WaitGroup
}

type state uint8

const (
	waiting state = iota // in the agenda
	queued               // in a lane
	running
	stopped
)

// Scheduled is one probe of an Engine. Engine.mu guards its variable fields.
type Scheduled struct {
	e    *Engine
	spec Spec

	state   state
	suspect bool // the last check was slow
	extra   bool
	index   int // position in the agenda
	due     time.Time
	ready   time.Time // end of the last round
	cancel  context.CancelFunc
	rhythm  rhythm
	tally   tally
}

// NewEngine checks cfg and returns an Engine, which Run starts.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if cfg.Parallel == 0 {
		cfg.Parallel = 256
	}
	if cfg.ParallelExpensive == 0 {
		cfg.ParallelExpensive = 32
	}
	var errs []error
	if cfg.Parallel < 0 {
		errs = append(errs, fmt.Errorf("EngineConfig.Parallel is %d; want a positive number", cfg.Parallel))
	}
	if cfg.ParallelExpensive < 0 {
		errs = append(errs, fmt.Errorf("EngineConfig.ParallelExpensive is %d; want a positive number", cfg.ParallelExpensive))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return &Engine{cfg: cfg, wake: make(chan struct{}, 1), lanes: [2]*lane{newLane(cfg.Parallel), newLane(cfg.ParallelExpensive)}}, nil
}

// Add adds a probe. Its times count from now.
func (e *Engine) Add(s Spec) *Scheduled {
	s.Timing = s.withDefaults()
	p := &Scheduled{e: e, spec: s, rhythm: newRhythm(s.Timing, time.Now(), random)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wait(p)
	return p
}

// Run runs checks until ctx ends, and returns nil when all have ended. It may be
// called once.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	if e.ctx != nil {
		e.mu.Unlock()
		return errors.New("schedule: Run was called before")
	}
	e.ctx = ctx
	e.mu.Unlock()
	timer := time.NewTimer(e.advance())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.mu.Lock()
			e.ended = true
			e.mu.Unlock()
			e.wg.Wait()
			return nil
		case <-timer.C:
		case <-e.wake:
		}
		timer.Reset(e.advance())
	}
}

// Len returns the number of probes that are not stopped, and of running checks.
func (e *Engine) Len() (waiting, running int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.lanes {
		running += l.busy + l.slow
		waiting += l.waiting()
	}
	return waiting + len(e.agenda), running
}

// Stop ends the probe: a running check is cancelled, and its outcome dropped. It
// may be called again.
func (p *Scheduled) Stop() {
	e := p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.state == waiting {
		e.agenda.remove(p.index)
	}
	p.state = stopped
	if p.cancel != nil {
		p.cancel()
	}
}

// wait puts a probe into the agenda. The caller holds e.mu.
func (e *Engine) wait(p *Scheduled) {
	p.state = waiting
	p.due, p.extra = p.rhythm.next()
	e.agenda.push(p)
	if p.index == 0 {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// advance starts due checks, and returns the time until the next one.
func (e *Engine) advance() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for len(e.agenda) > 0 && !e.agenda[0].due.After(now) {
		p := e.agenda[0]
		e.agenda.remove(0)
		p.state = queued
		e.laneOf(p).push(p)
	}
	for _, l := range e.lanes {
		e.fill(l)
	}
	if len(e.agenda) == 0 {
		return never
	}
	return e.agenda[0].due.Sub(now)
}

func (e *Engine) laneOf(p *Scheduled) *lane {
	if p.spec.Expensive {
		return e.lanes[1]
	}
	return e.lanes[0]
}

// begin returns the next check of a lane that may run, or nil. The caller holds e.mu.
func (e *Engine) begin(l *lane) *run {
	if e.ctx == nil || e.ended {
		return nil
	}
	r := l.take()
	if r != nil {
		r.p.state = running
	}
	return r
}

// fill starts all checks of a lane that may run. The caller holds e.mu.
func (e *Engine) fill(l *lane) {
	for r := e.begin(l); r != nil; r = e.begin(l) {
		e.wg.Add(1)
		go e.work(l, r)
	}
}

// work makes the check r, and then the checks that wait for a slot of l, until none
// waits.
func (e *Engine) work(l *lane, r *run) {
	defer e.wg.Done()
	for r != nil {
		e.timed(l, r)
		e.mu.Lock()
		l.done(r)
		r = e.begin(l)
		e.fill(l)
		e.mu.Unlock()
	}
}

// timed makes a check. It frees its slot for another check after slowAfter.
func (e *Engine) timed(l *lane, r *run) {
	if s := &r.p.spec; s.Group != "" && s.Timeout+s.Slack > slowAfter {
		long := time.AfterFunc(slowAfter, func() { e.yield(l, r) })
		defer long.Stop()
	}
	e.round(r.p)
}

// yield frees the slot of a slow check.
func (e *Engine) yield(l *lane, r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.over {
		return
	}
	l.yield(r)
	e.fill(l)
}

// round makes a probe's check and reports it.
func (e *Engine) round(p *Scheduled) {
	e.mu.Lock()
	if p.state != running {
		e.mu.Unlock()
		return // stopped meanwhile
	}
	ctx, cancel := context.WithTimeout(e.ctx, p.spec.Timeout+p.spec.Slack)
	defer cancel()
	p.cancel = cancel
	due, extra := p.due, p.extra
	if due.Before(p.ready) {
		due = p.ready
	}
	e.mu.Unlock()

	start := time.Now()
	if e.cfg.Late != nil {
		e.cfg.Late(start.Sub(due))
	}
	r := Round{Extra: extra}
	for range attempts {
		r.Outcome, r.Output, r.Err = call(ctx, p.spec.Check)
		if r.Err == nil || ctx.Err() != nil || time.Since(start) >= p.spec.Timeout {
			break
		}
	}
	r.Took = time.Since(start)

	e.mu.Lock()
	p.cancel = nil
	if p.state == stopped || e.ctx.Err() != nil {
		p.state = stopped
		e.mu.Unlock()
		return // no outcome
	}
	p.suspect = r.Took >= p.spec.Timeout || p.spec.Group != "" && r.Took >= slowAfter
	r.Verdict = p.tally.add(p.spec.Timing, r.Outcome, r.Err, extra)
	r.Errors = p.tally.errors
	e.mu.Unlock()

	again := p.spec.Done == nil || p.spec.Done(r)

	e.mu.Lock()
	defer e.mu.Unlock()
	if p.state == stopped {
		return
	}
	if !again {
		p.state = stopped
		return
	}
	succeeded := r.Err == nil && (r.Outcome == Success || r.Outcome == Warning)
	p.ready = time.Now()
	p.rhythm.ran(extra, succeeded, start, p.ready, random)
	e.wait(p)
}

// call makes one attempt. A panic counts as an error of the check, with a limited
// text.
func call(ctx context.Context, f Func) (o Outcome, out string, err error) {
	defer func() {
		if r := recover(); r != nil {
			o, out, err = Unknown, "", fmt.Errorf("panic: %v", r)
		}
		out, err = bounded(out), boundedError(err)
	}()
	return f(ctx)
}

// Load returns how many checks have a slot, how many slots there are (EngineConfig.Parallel), and
// how many checks wait for a slot. If expensive is true, the three numbers are for the slots of
// expensive checks (EngineConfig.ParallelExpensive).
func (e *Engine) Load(expensive bool) (running, limit, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if expensive {
		return e.lanes[1].load()
	}
	return e.lanes[0].load()
}
