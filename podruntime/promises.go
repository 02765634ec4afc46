package podruntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/callerror"
)

// promises are what the runtime said that it had done. A success that a later
// look does not show is a failure: without a wait, a runtime that contradicts
// itself would be asked as fast as it answers.
type promises struct {
	// mu guards all fields, and the promises themselves.
	mu sync.Mutex
	// pods are the promises by "" for the sandbox, by a container's name, and
	// by ending(ID) for what was ended.
	pods map[types.UID]map[string]*promise
	// removed are IDs of pods whose removal was confirmed; they outlive forget.
	removed removals
}

// promise is one success that is to be seen.
type promise struct {
	id string // what was made, or ended; "" if nothing is owed
	// at is when the runtime confirmed it: observations begun before say nothing
	// about it.
	at      time.Time
	seen    bool // a look has shown it
	strikes int  // failures in a row
	// until and err are those of the failure of this very id; zero before.
	until time.Time
	err   error
}

func newPromises() *promises {
	return &promises{pods: map[types.UID]map[string]*promise{}, removed: newRemovals(time.Now())}
}

// ending is the key of the promise that something has ended. No container has
// such a name.
func ending(id string) string { return "/" + id }

// made notes that the runtime said that it made, or ended, id.
func (p *promises) made(uid types.UID, key, id string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.pods[uid]
	if pod == nil {
		pod = map[string]*promise{}
		p.pods[uid] = pod
	}
	strikes := 0
	// A new success does not end a row of failures: only one that lasts does
	// (waits.Max).
	if old := pod[key]; old != nil {
		strikes = old.strikes
	}
	pod[key] = &promise{id: id, at: now, strikes: strikes}
}

// released notes that nothing is owed for an id any more: it was removed.
// It does not know the pod: it goes through all, which is cheap beside a
// removal.
func (p *promises) released(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		for _, e := range pod {
			if e.id == id {
				e.id = ""
			}
		}
	}
}

// forget drops what is owed of a pod, but not the IDs that were removed.
func (p *promises) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// look takes note of what a look at the pod shows.
func (p *promises) look(obs *observed.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, e := range p.pods[obs.UID] {
		if e.id == "" || obs.ObservedAt.Before(e.at) {
			// Nothing is owed, or the look is older than the promise.
			continue
		}
		state := stateIn(obs, e.id)
		switch {
		// The end is borne out, also by an instance that is not there any more.
		case strings.HasPrefix(key, ending("")):
			if state != observed.Running {
				delete(p.pods[obs.UID], key)
			}
		// A container that has run and ended was started as promised; a sandbox has
		// to last.
		case state == observed.Running, key != "" && state == observed.Exited:
			e.seen = true
		}
	}
}

// stateIn is the state of a sandbox or container, or Unknown.
func stateIn(obs *observed.Pod, id string) observed.State {
	for i := range obs.Sandboxes {
		if obs.Sandboxes[i].ID == id {
			return obs.Sandboxes[i].State
		}
	}
	if c := byID(obs, id); c != nil {
		return c.State
	}
	return observed.Unknown
}

// owed returns the promise of a key that a look at the pod does not bear out:
// the look is newer, and wants the same done again.
func (p *promises) owed(obs *observed.Pod, key string) (promise, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[obs.UID][key]
	if e == nil || e.id == "" || obs.ObservedAt.Before(e.at) {
		// Nothing was promised, it was removed since, or the look is too old to
		// judge by.
		return promise{}, false
	}
	// A copy: mu is not held by those who read it.
	return *e, true
}

// strike counts a failure of a key's promise. It returns nil if the same may be
// done again now: what was seen before it went has its first failure free,
// unless must is set.
func (p *promises) strike(uid types.UID, key string, must bool, err error, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[uid][key]
	if e == nil {
		return nil
	}
	// It lasted before its first failure: the row of failures is over.
	if e.until.IsZero() && now.Sub(e.at) >= waits.Max {
		e.strikes = 0
	}
	e.strikes++
	failures := e.strikes
	// What was made and seen may go once by itself, as by the hand of a person.
	if e.seen && !must {
		failures--
	}
	e.until, e.err = now, err
	if failures == 0 {
		return nil
	}
	// The wait doubles with each failure in a row, as those of tries do.
	e.until = now.Add(waits.After(failures))
	return &heldError{err: err, until: e.until}
}

// held returns the failure that was counted last while its wait lasts.
func (e *promise) held(now time.Time) error {
	if now.Before(e.until) {
		return &heldError{err: e.err, until: e.until}
	}
	return nil
}

// again reports whether something may be ended that was ended before, and runs.
func (p *promises) again(obs *observed.Pod, id, what string, now time.Time) error {
	e, ok := p.owed(obs, ending(id))
	if !ok {
		return nil
	}
	if err := e.held(now); err != nil {
		return err
	}
	if !e.until.IsZero() {
		// Its failure has been counted, and the wait is over.
		return nil
	}
	err := fmt.Errorf("%s still runs after a successful stop", what)
	return p.strike(obs.UID, ending(id), false, err, now)
}

// goes notes that the runtime said that it removed everything of a pod. It
// returns an error if it had said so before of what was there nevertheless.
func (p *promises) goes(obs *observed.Pod, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Here, as nothing else makes the record grow.
	p.removed.sweep(now)
	var err error
	note := func(what, id string) {
		// Only a look that was begun after the removal contradicts it. The first
		// one found is reported, and all are noted.
		if at, ok := p.removed.when(id); ok && !obs.ObservedAt.Before(at) && err == nil {
			err = fmt.Errorf("%s %s was still there after a successful removal", what, id)
		}
		p.removed.add(id, now)
	}
	for i := range obs.Sandboxes {
		note("sandbox", obs.Sandboxes[i].ID)
	}
	for i := range obs.Containers {
		note("container", obs.Containers[i].ID)
	}
	return err
}

// anotherSandbox returns an error while the previous sandbox may still run. If that sandbox
// vanished, or failed soon after it was made, the next attempt has to wait, too.
func (s *syncing) anotherSandbox(ctx context.Context) error {
	e, ok := s.m.promises.owed(s.obs, "")
	if !ok {
		return nil
	}
	if err := e.held(time.Now()); err != nil {
		return err
	}
	// The list may have lost a sandbox that is there: the runtime is asked about
	// the very ID before another takes its place.
	gone, runs := false, false
	if missing := stateIn(s.obs, e.id) == observed.Unknown; missing {
		st, err := s.m.rt.PodSandboxStatus(ctx, e.id, false)
		// No answer is no proof: a second sandbox beside a running one would have
		// the pod twice.
		if gone = cri.IsNotFound(err); err != nil && !gone {
			return fmt.Errorf("sandbox %s is not in the runtime's list: %w", e.id, err)
		}
		runs = !gone && st.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		switch {
		case runs:
			err = fmt.Errorf("sandbox %s runs, and the runtime does not list it", e.id)
		default:
			err = fmt.Errorf("sandbox %s is not there although the runtime said that it was made", e.id)
		}
		if err := s.struckSandbox(&e, runs, err); err != nil {
			return err
		}
		// Also what it says it does not have: no copies are left behind.
		return errors.Join(found(s.m.rt.StopPodSandbox(ctx, e.id)), found(s.m.rt.RemovePodSandbox(ctx, e.id)))
	}
	return s.struckSandbox(&e, false, fmt.Errorf("sandbox %s was of no use soon after the runtime said that it was made", e.id))
}

// struckSandbox counts a failure, once for each sandbox unless it runs.
func (s *syncing) struckSandbox(e *promise, runs bool, err error) error {
	if !runs && !e.until.IsZero() {
		return nil // it has waited for this
	}
	err = &reasonError{"CreatePodSandboxError", fmt.Errorf("%w: %w", ErrCreateSandbox, err)}
	if err = s.m.promises.strike(s.pod.UID, "", runs, err, time.Now()); err != nil {
		s.m.event(s.pod, v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
	}
	return err
}

// found returns nil for NotFound, and any other err as it is: to stop or remove an object that
// does not exist is no failure.
func found(err error) error {
	if cri.IsNotFound(err) {
		return nil
	}
	return err
}

// another returns an error while the previous instance of a container may still run. If that
// instance vanished or never ran, the next attempt has to wait, too.
func (s *syncing) another(ctx context.Context, c *v1.Container) error {
	e, ok := s.m.promises.owed(s.obs, c.Name)
	if !ok {
		return nil
	}
	s.mu.Lock()
	// Other containers of the pod start side by side, and change the observation.
	state, there := observed.Unknown, false
	if o := byID(s.obs, e.id); o != nil {
		state, there = o.State, true
	}
	s.mu.Unlock()
	if state == observed.Exited {
		return nil // how soon the next may follow is for the crash-loop back-off
	}
	if err := e.held(time.Now()); err != nil {
		return err
	}
	if there {
		// It is listed, and neither runs nor has ended: a start that did not take
		// place.
		return s.struck(c, &e, false, fmt.Errorf("container %s is %s although the runtime said that it started", e.id, state))
	}
	st, err := s.m.rt.ContainerStatus(ctx, e.id, false)
	gone := cri.IsNotFound(err)
	if err != nil && !gone {
		return s.struck(c, &e, true, fmt.Errorf("container %s is not in the runtime's list: %w", e.id, err))
	}
	if !gone && st.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return s.struck(c, &e, true, fmt.Errorf("container %s runs, and the runtime does not list it", e.id))
	}
	err = s.struck(c, &e, false, fmt.Errorf("container %s is not there although the runtime said that it started", e.id))
	if err != nil {
		return err
	}
	// Also what the runtime says it does not have: a copy that comes back would
	// run beside the next instance.
	if err := s.m.discard(ctx, e.id); err != nil {
		return fmt.Errorf("remove container %s, which is not in the runtime's list: %w", e.id, err)
	}
	return nil
}

// struck counts a failure of a container, once for each instance unless must is
// set.
func (s *syncing) struck(c *v1.Container, e *promise, must bool, err error) error {
	if !must && !e.until.IsZero() {
		return nil
	}
	err = s.m.promises.strike(s.pod.UID, c.Name, must, &reasonError{ReasonRunContainer, err}, time.Now())
	if err != nil {
		// The event has the container's name in place of the ID: events of all
		// instances are one, and are counted instead of listed.
		s.m.containerEvent(s.pod, c.Name, v1.EventTypeWarning, "Failed", "Error: %s", strings.ReplaceAll(callerror.Shown(err), e.id, c.Name))
		s.m.runs.note(s.pod.UID, c.Name, err)
	}
	return err
}
