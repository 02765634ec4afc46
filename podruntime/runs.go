package podruntime

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/podlife"
)

// waits are those after failures of one container or sandbox in a row. What fails makes events
// of its own: without a wait each failure would lead to the next at once. What lasted for the
// longest of them ends the row.
var waits = retry.Backoff{First: time.Second, Max: time.Minute}

// runState is how far a run is.
type runState uint8

const (
	// planned means that the runtime has nothing of it: it was not made yet, or is gone.
	planned runState = iota
	// created means that it was made, and not that it was started.
	created
	// started means that it runs, or has to.
	started
	// ending means that its end was asked for, and not confirmed.
	ending
	// ended means that it does not run any more, or must not.
	ended
)

func (s runState) String() string {
	return [...]string{"planned", "created", "started", "ending", "ended"}[s]
}

// run is one attempt of one container of a pod, or of its sandbox. It is in memory alone: an
// agent that begins learns of runs by what the runtime shows.
type run struct {
	Name string // of the container; "" is the sandbox
	ID   string // in the runtime; "" if it is planned
	// State is what the runtime said last, in answer to a call or in a look.
	State runState
	// Since is when the runtime said so in answer to a call, when the end of an ending run was
	// asked for first, or when an ended run ended. A look that began before it says nothing
	// about State. Zero means that only looks have shown State: the runtime owes nothing then.
	Since time.Time
	// Seen reports that a look that began after Since has shown State.
	Seen bool
	// Ends is why the run is ended, or was; "" if nobody ended it.
	Ends podlife.Kind
	// Next is when another attempt may be made, or when what was ended may be ended again.
	// It is zero if nothing has failed since Since.
	Next time.Time
	// Err is why the last attempt to start came no further, which may have ended before
	// the runtime made anything; nil after one that succeeded.
	Err error
	// Given are the resources that it has, as far as this process gave them. The values are
	// shared and never changed.
	Given resources

	history
}

// resources are values of one resource each.
type resources map[v1.ResourceName]*runtimeapi.LinuxContainerResources

// history is what a run takes over from the one before.
type history struct {
	failed time.Duration // the last wait after failed calls in a row; 0 if the last succeeded
	broken int           // successes in a row that a look contradicted
	loop   crashLoop
	// lastID and lastEnds are ID and Ends of the run before.
	lastID   string
	lastEnds podlife.Kind
}

// runs are the runs of all pods.
type runs struct {
	mu   sync.Mutex
	pods map[types.UID]*podRuns
	// removed are IDs of which the runtime said that it removed them. They outlive forget.
	removed removals
	// left are pods whose record of crash loops could not be deleted. The memory may not list
	// it: what a failed write has left is no value.
	left map[types.UID]bool
}

// podRuns are the runs of one pod. Its methods have neither lock nor clock.
type podRuns struct {
	life   uint32          // the number of the pod's life
	newest map[string]*run // by the container's name
	older  []*run          // those that were to end, and may not have
	given  resources       // those of the pod's cgroup, as Given of a run
	loops  savedState
}

func newRuns() *runs {
	return &runs{pods: map[types.UID]*podRuns{}, removed: newRemovals(time.Now()), left: map[types.UID]bool{}}
}

// see calls do with the runs of a pod, if it has any, under the lock.
func (r *runs) see(uid types.UID, do func(*podRuns)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		do(p)
	}
}

// change is see for a pod that may have no runs yet.
func (r *runs) change(uid types.UID, do func(*podRuns)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		p = newPodRuns()
		r.pods[uid] = p
	}
	do(p)
}

// forget drops all runs of a pod. It reports whether the memory may have a record of it.
func (r *runs) forget(uid types.UID) (saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		saved = p.loops.saved
	}
	delete(r.pods, uid)
	return saved
}

// stay notes whether the memory still has a record of a pod that is gone.
func (r *runs) stay(uid types.UID, stays bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.left, uid); stays {
		r.left[uid] = true
	}
}

// all returns the pods of which anything is known, and those of which only a record is left.
func (r *runs) all() (known, left []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.pods)), slices.Collect(maps.Keys(r.left))
}

// begin notes that a pod is in a life. What a new life was not there for delays nothing in it:
// failed starts and crash loops of the one before. What was to end there, and may not have, stays.
func (p *podRuns) begin(life uint32) {
	if life <= p.life {
		return
	}
	p.life = life
	for _, r := range p.newest {
		if r.Err = nil; !r.ends() {
			r.Next = time.Time{}
		}
		r.history = history{broken: r.broken, loop: crashLoop{definition: r.loop.definition, old: r.ID}}
	}
	p.loops.dirty = p.loops.saved
}

func newPodRuns() *podRuns { return &podRuns{newest: map[string]*run{}} }

// of returns the newest run of a container, a planned one if there is none.
func (p *podRuns) of(name string) *run {
	r := p.newest[name]
	if r == nil {
		r = &run{Name: name}
		p.newest[name] = r
	}
	return r
}

// byID returns the run with that ID, or nil.
func (p *podRuns) byID(id string) *run {
	for _, r := range p.newest {
		if r.ID == id && id != "" {
			return r
		}
	}
	for _, r := range p.older {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// instance is byID for an instance that was made by an earlier agent.
func (p *podRuns) instance(name, id string) *run {
	r := p.byID(id)
	if r == nil {
		r = &run{Name: name, ID: id, State: started}
		p.older = append(p.older, r)
	}
	return r
}

// made notes that a container or sandbox was made: it is the newest now.
func (p *podRuns) made(name, id string, state runState, now time.Time) {
	r := p.of(name)
	if old := *r; old.ends() {
		p.older = append(p.older, &old)
	}
	r.gone()
	r.ID, r.State, r.Since = id, state, now
}

// ends reports that the run was to end, and that no look has shown that it did.
func (r *run) ends() bool { return r.State == ending || r.State == ended && !r.Seen }

// gone makes the next attempt of what the runtime has nothing of.
func (r *run) gone() {
	r.settle()
	if r.ID != "" {
		r.lastID, r.lastEnds = r.ID, r.Ends
	}
	*r = run{Name: r.Name, Next: r.Next, Err: r.Err, history: r.history}
}

// settle ends a wait that was for this run: what it was for does not matter any more. A wait
// after a failed call is for the next one.
func (r *run) settle() {
	if r.failed == 0 {
		r.Next = time.Time{}
	}
}

// fail notes that a call of an attempt failed, and returns err with the time of the next one.
func (p *podRuns) fail(name string, err error, now time.Time) error {
	r := p.of(name)
	r.failed = waits.Following(r.failed)
	r.Next, r.Err = now.Add(r.failed), err
	return &triedError{err: err, until: r.Next}
}

// started notes that a container or sandbox runs. Why it came no further before is over when
// its hook has succeeded as well.
func (p *podRuns) started(name, id string, now time.Time) {
	if p.of(name).ID != id {
		p.made(name, id, started, now)
	}
	r := p.of(name)
	r.State, r.Since, r.Seen, r.Next, r.failed = started, now, false, time.Time{}, 0
}

// held returns why a container or sandbox may not be made or started yet, and until when; nil
// if it may.
func (p *podRuns) held(name string, now time.Time) *heldError {
	if r := p.newest[name]; r != nil && !r.ends() && now.Before(r.Next) {
		return &heldError{triedError{err: r.Err, until: r.Next}}
	}
	return nil
}

// retry ends the waits after failed calls.
func (p *podRuns) retry() {
	for _, r := range p.newest {
		if r.failed > 0 {
			r.Next, r.failed = time.Time{}, 0
		}
	}
}

// end notes that the end of an instance is asked for. It returns what was known before, for
// [podRuns.unheard]. Its time to end goes on if it was asked for before, for the same reason.
func (p *podRuns) end(name, id string, why podlife.Kind, now time.Time) (before run) {
	r := p.instance(name, id)
	before = *r
	if r.State != ending || r.Ends != why {
		r.State, r.Since, r.Seen, r.Ends = ending, now, false, why
	}
	return before
}

// unheard notes that the runtime did not hear that it should end an instance.
func (p *podRuns) unheard(before run) {
	if r := p.byID(before.ID); r != nil && r.State == ending {
		*r = before
	}
}

// stopped notes that the runtime said that an instance has ended.
func (p *podRuns) stopped(name, id string, now time.Time) {
	r := p.instance(name, id)
	r.State, r.Since, r.Seen, r.Next = ended, now, false, time.Time{}
}

// discarded notes that the runtime said that it removed an instance.
func (p *podRuns) discarded(id string) {
	if r := p.byID(id); r != nil && p.newest[r.Name] == r {
		r.gone()
	}
	p.older = slices.DeleteFunc(p.older, func(r *run) bool { return r.ID == id })
}

// learn merges a look at the pod into its runs. It returns the IDs of those that the look
// contradicts: they were started, and neither run nor have ended, or were ended and run.
//
// The newest instance of a container is a run from its first look on. Of a sandbox it is not
// said whether it is of use.
func (p *podRuns) learn(look *observed.Pod, now time.Time) (broken []string) {
	for i := range look.Containers {
		o := &look.Containers[i]
		if look.Newest(o.Name) != o {
			continue
		}
		if r := p.of(o.Name); r.ID != o.ID && !look.ObservedAt.Before(r.Since) && (r.Since.IsZero() || r.State == ended) {
			p.made(o.Name, o.ID, created, time.Time{})
		}
	}
	for _, r := range p.newest {
		if r.learn(look, now) {
			broken = append(broken, r.ID)
		}
	}
	p.older = slices.DeleteFunc(p.older, func(r *run) bool {
		if r.learn(look, now) {
			broken = append(broken, r.ID)
		}
		return !r.ends()
	})
	return broken
}

// learn merges what a look shows of one run, and reports whether it contradicts the run.
func (r *run) learn(look *observed.Pod, now time.Time) (broken bool) {
	if r.ID == "" {
		return false
	}
	state, there := shown(look, r.ID)
	c := byID(look, r.ID)
	switch {
	// A container does not come back from its end: any look that shows it is right.
	case c != nil && state == observed.Exited:
		r.sawEnd(c, now)
	case look.ObservedAt.Before(r.Since): // too old
	case state == observed.Running && r.ends():
		return r.State == ended
	case state == observed.Running && r.State == started:
		r.Seen = true
	case state == observed.Running:
		r.State, r.Since, r.Seen = started, time.Time{}, true
	case r.State == ended:
		r.Seen = true
		r.settle()
	case r.State == started && !r.Since.IsZero():
		return true
	case !there:
		r.gone()
	case state == observed.Created && r.State == started:
		r.State = created
	}
	return false
}

// sawEnd notes the end of a container. Once seen, it stays where it is however the wall clock
// jumps.
func (r *run) sawEnd(c *observed.Container, now time.Time) {
	if r.State != ended {
		r.State, r.Since = ended, ago(c.FinishedAt, now)
	}
	r.Seen = true
	r.settle()
}

// ago is t by the clock of now. What is in the future, as it seems after the clock was put back,
// is now.
func ago(t, now time.Time) time.Time { return now.Add(-max(now.Sub(t), 0)) }

// ended returns when the newest instance of a container that is shown ended.
func (p *podRuns) ended(last *observed.Container, now time.Time) time.Time {
	r := p.of(last.Name)
	if r.ID != last.ID && (r.Since.IsZero() || r.State == ended) {
		p.made(last.Name, last.ID, created, time.Time{})
	}
	switch {
	case r.ID != last.ID:
		return ago(last.FinishedAt, now) // another one was started since
	case r.State != ended:
		r.sawEnd(last, now)
	}
	return r.Since
}

// shown is the state of a sandbox or container in a look, and whether it is there.
func shown(look *observed.Pod, id string) (state observed.State, there bool) {
	for i := range look.Sandboxes {
		if look.Sandboxes[i].ID == id {
			return look.Sandboxes[i].State, true
		}
	}
	if c := byID(look, id); c != nil {
		return c.State, true
	}
	return observed.Unknown, false
}

// strike counts that a look contradicted a run. It returns an error that says how long the same
// must not be done again; nil if it may. What was seen before it went has its first failure
// free, as it may have gone by the hand of a person, unless must is set.
func (r *run) strike(must bool, err error, now time.Time) error {
	// It lasted before its first failure: the row of failures is over. A success that does not
	// last ends none.
	if r.Next.IsZero() && now.Sub(r.Since) >= waits.Max {
		r.broken = 0
	}
	r.broken++
	failures := r.broken
	if r.Seen && !must {
		failures--
	}
	if r.Next = now; failures == 0 {
		return nil
	}
	r.Next = now.Add(waits.After(failures))
	return &heldError{triedError{err: err, until: r.Next}}
}

// again returns an error while what was ended before, and runs, may not be ended again.
func (p *podRuns) again(id, what string, now time.Time) error {
	r := p.byID(id)
	err := fmt.Errorf("%s still runs after a successful stop", what)
	switch {
	case r == nil || r.State != ended || r.Seen:
		return nil
	case now.Before(r.Next):
		return &heldError{triedError{err: err, until: r.Next}}
	case r.Next.IsZero():
		return r.strike(false, err, now)
	default:
		return nil // it has waited for this
	}
}

// goes notes that the runtime said that it removed everything of a pod. It returns an error if
// it had said so before of what was there nevertheless.
func (r *runs) goes(look *observed.Pod, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Here, as nothing else makes the record grow.
	r.removed.sweep(now)
	var err error
	note := func(what, id string) {
		// The first one found is reported, and all are noted.
		if at, ok := r.removed.when(id); ok && !look.ObservedAt.Before(at) && err == nil {
			err = fmt.Errorf("%s %s still exists after a successful removal", what, id)
		}
		r.removed.add(id, now)
	}
	for i := range look.Sandboxes {
		note("sandbox", look.Sandboxes[i].ID)
	}
	for i := range look.Containers {
		note("container", look.Containers[i].ID)
	}
	return err
}

// newest returns a copy of the newest run of a container.
func (r *runs) newest(uid types.UID, name string) (out run) {
	r.see(uid, func(p *podRuns) {
		if r := p.newest[name]; r != nil {
			out = *r
		}
	})
	return out
}

// given returns what a container, or with wholePod the pod's cgroup, was given last; nil if that
// is not known. It is not to be changed.
func (r *runs) given(uid types.UID, id string, name v1.ResourceName) (out *runtimeapi.LinuxContainerResources) {
	r.see(uid, func(p *podRuns) {
		if id == wholePod {
			out = p.given[name]
		} else if r := p.byID(id); r != nil {
			out = r.Given[name]
		}
	})
	return out
}

// give notes what a container, or with wholePod the pod's cgroup, was given. It keeps to.
func (r *runs) give(uid types.UID, id string, name v1.ResourceName, to *runtimeapi.LinuxContainerResources) {
	r.change(uid, func(p *podRuns) {
		given := &p.given
		if id != wholePod {
			r := p.byID(id)
			if r == nil {
				return // it is gone
			}
			given = &r.Given
		}
		if *given == nil {
			*given = resources{}
		}
		(*given)[name] = to
	})
}

// held is [podRuns.held].
func (r *runs) held(uid types.UID, name string, now time.Time) (err *heldError) {
	r.see(uid, func(p *podRuns) { err = p.held(name, now) })
	return err
}

// fail is [podRuns.fail].
func (r *runs) fail(uid types.UID, name string, err error, now time.Time) error {
	r.change(uid, func(p *podRuns) { err = p.fail(name, err, now) })
	return err
}

// note notes how the last attempt of a container went, for StartErrors.
func (r *runs) note(uid types.UID, name string, err error) {
	r.change(uid, func(p *podRuns) { p.of(name).Err = err })
}

// Retry ends the back-offs of failed creations and starts of the pod, since something that they
// depend on has changed. Crash-loop back-offs stay.
func (m *Manager) Retry(uid types.UID) { m.runs.see(uid, (*podRuns).retry) }

// EndedFor returns why a container of a pod was ended, "" if nobody ended it or that is not known
// any more: it is known of the last two instances of each container that this Manager has seen.
func (m *Manager) EndedFor(uid types.UID, id string) (why podlife.Kind) {
	m.runs.see(uid, func(p *podRuns) { why = p.endedFor(id) })
	return why
}

func (p *podRuns) endedFor(id string) podlife.Kind {
	if r := p.byID(id); r != nil {
		return r.Ends
	}
	for _, r := range p.newest {
		if r.lastID == id {
			return r.lastEnds
		}
	}
	return ""
}

// StartErrors returns, by container name, why containers wait whose last start failed, or has to
// wait: users see Reason and Message unchanged. The map is the caller's. It has none of an earlier
// life.
func (m *Manager) StartErrors(life podlife.Life) map[string]podlife.Cause {
	out := map[string]podlife.Cause{}
	m.runs.see(life.UID, func(p *podRuns) {
		if p.life < life.N {
			return
		}
		for name, r := range p.newest {
			if name == "" || r.Err == nil {
				continue
			}
			out[name] = causeOf(r.Err)
		}
	})
	return out
}

// triedError is a failure with the time of the next try.
type triedError struct {
	err   error
	until time.Time
}

func (e *triedError) Error() string      { return e.err.Error() }
func (e *triedError) Unwrap() error      { return e.err }
func (e *triedError) RetryAt() time.Time { return e.until }

// heldError is the failure of an earlier try: the next one has to wait, and nothing was asked of
// the runtime.
type heldError struct{ triedError }

// Is reports that it matches errUndone.
func (e *heldError) Is(target error) bool { return target == errUndone }
