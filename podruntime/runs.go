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

// waits are the waits after consecutive failures of one container or sandbox. A failed call
// causes an event of the runtime: without a wait each failure would lead to the next call at
// once. A container or sandbox that has lasted for waits.Max begins again with the shortest wait.
var waits = retry.Backoff{First: time.Second, Max: time.Minute}

// runState is the phase of a run, in the order in which a run goes through the phases.
type runState uint8

const (
	// planned means that the runtime has no such container or sandbox: it was not made yet, or has
	// disappeared.
	planned runState = iota
	// created means that the instance was made and is not known to have been started.
	created
	// started means that the instance runs, or that the runtime has confirmed its start.
	started
	// ending means that the runtime was asked to stop the instance and has not confirmed the stop.
	ending
	// ended means that the instance has exited, or that the runtime has confirmed its stop.
	ended
)

func (s runState) String() string {
	return [...]string{"planned", "created", "started", "ending", "ended"}[s]
}

// run is one attempt (instance) of a container of a pod, or of its sandbox. Runs are in memory
// only: after a restart of the agent they are made from observations of the runtime.
type run struct {
	Name string // container name; "" means the sandbox
	ID   string // ID in the runtime; "" in the state planned
	// State is the state that the runtime reported last, in answer to a call or in an
	// observation.
	State runState
	// Since is when the runtime confirmed State in answer to a call. For a run in the state
	// ending it is when the first stop was requested; for an ended run, when it ended. An
	// observation that began before Since says nothing about State. If Since is zero, State is
	// known from observations only, so that no observation can contradict an answer of the
	// runtime.
	Since time.Time
	// Seen reports that an observation that began after Since has shown State.
	Seen bool
	// Ends is the reason for which the agent ends or ended the run. It is "" if the agent does
	// not end it.
	Ends podlife.Kind
	// Next is when another attempt may be made, or when a run that was stopped and still runs may
	// be stopped again. It is zero if no call has failed since Since.
	Next time.Time
	// Err is the failure of the last attempt to start, or nil if that attempt succeeded. The
	// attempt may have failed before the runtime made anything.
	Err error
	// Given has the resources that this process last gave to the container. The values are shared
	// and never changed.
	Given resources

	history
}

// resources has runtime values by resource. Each entry has the values of that resource alone.
type resources map[v1.ResourceName]*runtimeapi.LinuxContainerResources

// history has the fields that a run takes over from the previous run of the same container or
// sandbox.
type history struct {
	failed time.Duration // the last wait after failed calls in a row; 0 if the last call succeeded
	broken int           // successes in a row that an observation contradicted
	loop   crashLoop
	// lastID and lastEnds are ID and Ends of the previous run.
	lastID   string
	lastEnds podlife.Kind
}

// runs has what is known about the attempts of the containers and sandboxes of all pods.
type runs struct {
	mu   sync.Mutex
	pods map[types.UID]*podRuns
	// removed has the IDs of sandboxes and containers whose removal the runtime has confirmed.
	// forget does not drop them.
	removed removals
	// left has the pods whose record of crash loops could not be deleted from Config.Memory. A
	// list of the stored records does not replace it, since the list may lack what a failed write
	// has left.
	left map[types.UID]bool
}

// podRuns are the runs of one pod. The methods take no lock and read no clock: the caller holds
// runs.mu.
type podRuns struct {
	life   uint32          // the number of the pod's life, see podlife.Life
	newest map[string]*run // newest run of each container by name, and of the sandbox under ""
	older  []*run          // earlier runs that were to end and may still run
	given  resources       // the resources that the pod's cgroup was given last
	loops  savedState
}

func newRuns() *runs {
	return &runs{pods: map[types.UID]*podRuns{}, removed: newRemovals(time.Now()), left: map[types.UID]bool{}}
}

// see calls fn with the runs of a pod while it holds the lock. It does nothing if the pod has no
// runs.
func (r *runs) see(uid types.UID, fn func(*podRuns)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		fn(p)
	}
}

// change calls fn with the runs of a pod while it holds the lock. A pod without runs gets an
// empty podRuns first.
func (r *runs) change(uid types.UID, fn func(*podRuns)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		p = newPodRuns()
		r.pods[uid] = p
	}
	fn(p)
}

// forget drops all runs of a pod. saved reports that Config.Memory may have a record of the pod.
func (r *runs) forget(uid types.UID) (saved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		saved = p.loops.saved
	}
	delete(r.pods, uid)
	return saved
}

// stay records whether Config.Memory still has a record of a removed pod. Retain deletes such a
// record later.
func (r *runs) stay(uid types.UID, stays bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.left, uid); stays {
		r.left[uid] = true
	}
}

// all returns the pods that have runs, and the removed pods whose record could not be deleted.
func (r *runs) all() (known, left []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.pods)), slices.Collect(maps.Keys(r.left))
}

// begin records the number of the pod's life. A new life is not delayed by failed starts and
// crash loops of the previous one. Runs that the agent is stopping, and that may still run, are
// kept.
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

// of returns the newest run of a container. If there is none, it adds one in the state planned.
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

// instance returns the run with that ID. If there is none, an earlier process of the agent made the
// instance: then instance adds a run in the state started.
func (p *podRuns) instance(name, id string) *run {
	r := p.byID(id)
	if r == nil {
		r = &run{Name: name, ID: id, State: started}
		p.older = append(p.older, r)
	}
	return r
}

// made records that an instance of a container or a sandbox was made. It becomes the newest run.
func (p *podRuns) made(name, id string, state runState, now time.Time) {
	r := p.of(name)
	if old := *r; old.ends() {
		p.older = append(p.older, &old)
	}
	r.gone()
	r.ID, r.State, r.Since = id, state, now
}

// ends reports that the agent stopped or is stopping the run, and that no observation has shown
// its end.
func (r *run) ends() bool { return r.State == ending || r.State == ended && !r.Seen }

// gone replaces a run that the runtime no longer has with the next attempt, which is in the state
// planned. The next attempt keeps the wait, the error and the history of the run.
func (r *run) gone() {
	r.settle()
	if r.ID != "" {
		r.lastID, r.lastEnds = r.ID, r.Ends
	}
	*r = run{Name: r.Name, Next: r.Next, Err: r.Err, history: r.history}
}

// settle ends the wait that countFailure began when an observation did not show the run in its
// recorded state. A wait after a failed call stays: it delays the next attempt.
func (r *run) settle() {
	if r.failed == 0 {
		r.Next = time.Time{}
	}
}

// fail records that a call of an attempt failed, and returns err with the time of the next attempt.
func (p *podRuns) fail(name string, err error, now time.Time) error {
	r := p.of(name)
	r.failed = waits.Following(r.failed)
	r.Next, r.Err = now.Add(r.failed), err
	return &triedError{err: err, until: r.Next}
}

// started records that the runtime has started a container or sandbox, and ends the waits after
// failures. It does not clear Err: the error of the last attempt is cleared only when the
// postStart hook has succeeded as well.
func (p *podRuns) started(name, id string, now time.Time) {
	if p.of(name).ID != id {
		p.made(name, id, started, now)
	}
	r := p.of(name)
	r.State, r.Since, r.Seen, r.Next, r.failed = started, now, false, time.Time{}, 0
}

// held returns an error, with the time of the next try, while a container or sandbox must not be
// made or started yet, and otherwise nil.
func (p *podRuns) held(name string, now time.Time) *heldError {
	if r := p.newest[name]; r != nil && !r.ends() && now.Before(r.Next) {
		return &heldError{triedError{err: r.Err, until: r.Next}}
	}
	return nil
}

// retry lets calls that have failed be made again at once.
func (p *podRuns) retry() {
	for _, r := range p.newest {
		if r.failed > 0 {
			r.Next, r.failed = time.Time{}, 0
		}
	}
}

// end records that the runtime is asked to stop an instance. It returns the run as it was before,
// for [podRuns.unheard]. A second call for the same reason does not change Since: the grace period
// does not begin anew.
func (p *podRuns) end(name, id string, kind podlife.Kind, now time.Time) (before run) {
	r := p.instance(name, id)
	before = *r
	if r.State != ending || r.Ends != kind {
		r.State, r.Since, r.Seen, r.Ends = ending, now, false, kind
	}
	return before
}

// unheard undoes [podRuns.end] if the call did not reach the runtime. before is the result of
// end.
func (p *podRuns) unheard(before run) {
	if r := p.byID(before.ID); r != nil && r.State == ending {
		*r = before
	}
}

// stopped records that the runtime has confirmed the stop of an instance.
func (p *podRuns) stopped(name, id string, now time.Time) {
	r := p.instance(name, id)
	r.State, r.Since, r.Seen, r.Next = ended, now, false, time.Time{}
}

// discarded records that the runtime has confirmed the removal of an instance.
func (p *podRuns) discarded(id string) {
	if r := p.byID(id); r != nil && p.newest[r.Name] == r {
		r.gone()
	}
	p.older = slices.DeleteFunc(p.older, func(r *run) bool { return r.ID == id })
}

// learn merges an observation of the pod into its runs. It returns the IDs of the runs that the
// observation contradicts: runs that were started and neither run nor have exited, and runs that
// were stopped and still run.
//
// The first observation of a container adds a run for its newest instance. The observation of a
// sandbox adds none, since it does not show whether the sandbox can be used.
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

// learn merges an observation of the pod into one run, and reports whether the observation
// contradicts the run.
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

// sawEnd records that an observation shows the end of a container. The time of the end is taken
// once, so that a later jump of the wall clock does not move it.
func (r *run) sawEnd(c *observed.Container, now time.Time) {
	if r.State != ended {
		r.State, r.Since = ended, monotonic(c.FinishedAt, now)
	}
	r.Seen = true
	r.settle()
}

// monotonic converts the wall-clock time t to a time on now's monotonic clock. A time in the future,
// as after the wall clock was put back, becomes now.
func monotonic(t, now time.Time) time.Time { return now.Add(-max(now.Sub(t), 0)) }

// ended returns when last, the newest exited instance of a container, has ended.
func (p *podRuns) ended(last *observed.Container, now time.Time) time.Time {
	r := p.of(last.Name)
	if r.ID != last.ID && (r.Since.IsZero() || r.State == ended) {
		p.made(last.Name, last.ID, created, time.Time{})
	}
	switch {
	case r.ID != last.ID:
		return monotonic(last.FinishedAt, now) // another one was started since
	case r.State != ended:
		r.sawEnd(last, now)
	}
	return r.Since
}

// shown returns the state of a sandbox or container in an observation. exists reports that the
// observation has it.
func shown(look *observed.Pod, id string) (state observed.State, exists bool) {
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

// countFailure counts that an observation contradicted the run. It returns an error with the time
// before which the same call must not be made again, or nil if the call may be made now. If an
// observation has shown the run before, its first failure causes no wait, since a person may have
// removed the container; with always set, the first failure causes a wait, too.
func (r *run) countFailure(always bool, err error, now time.Time) error {
	// It lasted before its first failure: the row of failures is over. A success that does not
	// last ends none.
	if r.Next.IsZero() && now.Sub(r.Since) >= waits.Max {
		r.broken = 0
	}
	r.broken++
	failures := r.broken
	if r.Seen && !always {
		failures--
	}
	if r.Next = now; failures == 0 {
		return nil
	}
	r.Next = now.Add(waits.After(failures))
	return &heldError{triedError{err: err, until: r.Next}}
}

// mayStop returns an error, with the time of the next try, while a run that was stopped and still
// runs must not be stopped again yet. The error calls the run label.
func (p *podRuns) mayStop(id, label string, now time.Time) error {
	r := p.byID(id)
	err := fmt.Errorf("%s still runs after a successful stop", label)
	switch {
	case r == nil || r.State != ended || r.Seen:
		return nil
	case now.Before(r.Next):
		return &heldError{triedError{err: err, until: r.Next}}
	case r.Next.IsZero():
		return r.countFailure(false, err, now)
	default:
		return nil // it has waited for this
	}
}

// goes records that the runtime has confirmed the removal of all sandboxes and containers in the
// observation look. It returns an error if one of them was removed, with the runtime's
// confirmation, before the observation was made.
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

// given returns the values of a resource that the container id was given last, or nil if they are
// not known. For wholePod they are the values of the pod's cgroup. The caller must not change
// them.
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

// give records the values of a resource that the container id was given. For wholePod they are
// the values of the pod's cgroup. give keeps values: the caller must not change them afterwards.
func (r *runs) give(uid types.UID, id string, name v1.ResourceName, values *runtimeapi.LinuxContainerResources) {
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
		(*given)[name] = values
	})
}

// held calls [podRuns.held] while it holds the lock.
func (r *runs) held(uid types.UID, name string, now time.Time) (err *heldError) {
	r.see(uid, func(p *podRuns) { err = p.held(name, now) })
	return err
}

// fail calls [podRuns.fail] while it holds the lock.
func (r *runs) fail(uid types.UID, name string, err error, now time.Time) error {
	r.change(uid, func(p *podRuns) { err = p.fail(name, err, now) })
	return err
}

// note records the error of the last attempt to start a container, for StartErrors. After a
// success err is nil.
func (r *runs) note(uid types.UID, name string, err error) {
	r.change(uid, func(p *podRuns) { p.of(name).Err = err })
}

// Retry ends the back-offs after failed creations and starts of the pod. Callers use it when
// something that a start depends on has changed. Crash-loop back-offs stay.
func (m *Manager) Retry(uid types.UID) { m.runs.see(uid, (*podRuns).retry) }

// EndedFor returns why the agent ended the container with that ID. It returns "" if the agent did
// not end it, or if the reason is not known any more: this Manager keeps the reasons of the last
// two instances of each container.
func (m *Manager) EndedFor(uid types.UID, id string) (kind podlife.Kind) {
	m.runs.see(uid, func(p *podRuns) { kind = p.endedFor(id) })
	return kind
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

// StartErrors returns, by container name, the causes of starts that failed or have to wait.
// Statuses show their Reason and Message unchanged. The caller may change the map. Errors of an
// earlier life of the pod are left out.
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

// heldError is returned instead of a call of the runtime that has to wait. It has the failure of
// the earlier call and the time of the next one.
type heldError struct{ triedError }

// Is reports that the error matches errUndone: the runtime was not called.
func (e *heldError) Is(target error) bool { return target == errUndone }
