package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/topology"
)

const (
	// decideTimeout bounds the admission of a pod that plugins take part in;
	// each call to a plugin has a shorter one.
	decideTimeout = 2 * time.Minute
	// decideAttempts bounds how often it is made again because devices, CPUs or
	// memory were given to others meanwhile.
	decideAttempts = 5
	// decidePause is between a decision that had to wait and the next about the
	// same pod, whatever changes meanwhile.
	decidePause = time.Second
)

// decisions are the admissions of pods that plugins take part in. Each is made
// on a goroutine of its own, and the loop takes up what came of it: a plugin that
// hangs delays those that want its devices, and nobody else.
//
// Until a decision is made its pod counts as one that was admitted, as it would
// if the loop had waited for it. Others that would fit without it wait.
type decisions struct {
	ctx      context.Context // the agent's, while it runs
	news     chan struct{}   // the loop has something to take up; capacity 1
	restored chan struct{}   // closed when it is known who has which devices
	// bare is the node of an agent that places nothing.
	bare fit.Node

	mu      sync.Mutex
	all     map[types.UID]*decision
	waiting map[types.UID]*pause
	changed bool // devices have, since the pods that wait were asked for
}

// pause holds a verdict for a while.
type pause struct {
	verdict *Rejection
	asked   bool // for another one, meanwhile
}

// decision is one admission. There is one at a time for a pod.
type decision struct {
	pod    *v1.Pod // as it asked
	since  time.Time
	cancel context.CancelFunc

	made    bool       // verdict tells what came of it
	verdict *Rejection // nil: the pod has all it asked for
	dropped bool       // the pod has gone meanwhile
	ended   bool       // and what it was given has been taken back
}

// undecided stands for a verdict that is still to come.
var undecided = &Rejection{Reason: "Undecided"}

func newDecisions(cfg *Config) (*decisions, error) {
	d := &decisions{
		ctx: context.Background(), news: make(chan struct{}, 1), restored: make(chan struct{}), all: map[types.UID]*decision{},
		waiting: map[types.UID]*pause{},
	}
	if cfg.Devices == nil {
		return d, nil
	}
	var err error
	if d.bare, err = fit.New(cfg.Placement); err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return d, nil
}

// wake has the loop look for news. It never blocks.
func (d *decisions) wake() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// change has the loop ask again for the pods that wait.
func (d *decisions) change() {
	d.mu.Lock()
	d.changed = true
	d.mu.Unlock()
	d.wake()
}

// hold keeps a verdict that lets a pod wait. d.mu is held.
func (d *decisions) hold(uid types.UID, verdict *Rejection) {
	p := &pause{verdict: verdict}
	d.waiting[uid] = p
	time.AfterFunc(decidePause, func() {
		d.mu.Lock()
		delete(d.waiting, uid)
		asked := p.asked
		d.mu.Unlock()
		if asked {
			d.change()
		}
	})
}

// held is the verdict on a pod that was decided on just now.
func (d *decisions) held(uid types.UID) *Rejection {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.waiting[uid]
	if p == nil {
		return nil
	}
	p.asked = true
	return p.verdict
}

// pending lists the pods that are being decided on.
func (d *decisions) pending() []*decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*decision
	for _, e := range d.all {
		if !e.dropped {
			out = append(out, e)
		}
	}
	return out
}

// has tells whether a pod is being decided on, and since when.
func (d *decisions) has(uid types.UID) (since time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.all[uid]; e != nil && !e.dropped {
		return e.since, true
	}
	return time.Time{}, false
}

// take returns the verdict on a pod, once. It is undecided while that is being
// made, or while an earlier one is being taken back.
func (d *decisions) take(uid types.UID) (r *Rejection, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.all[uid]
	switch {
	case e == nil:
		return nil, false
	case !e.made || e.dropped:
		return undecided, true
	}
	delete(d.all, uid)
	if e.verdict != nil {
		d.hold(uid, e.verdict)
	}
	return e.verdict, true
}

// deciding tells whether a pod that has changed waits for a verdict: its newest
// version is taken up with that. One that is to go does not wait.
func (a *Agent) deciding(pod *v1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		a.dropDecision(pod.UID)
		return false
	}
	_, ok := a.decisions.has(pod.UID)
	return ok
}

// dropDecision is for a pod that goes. What it is given meanwhile is taken back.
func (a *Agent) dropDecision(uid types.UID) {
	d := a.decisions
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.all[uid]
	if e == nil || e.dropped {
		return
	}
	e.dropped = true
	e.cancel()
	if e.made {
		a.sweeps.Go(func() { a.undo(e) })
	}
}

// undo takes back what a pod was given that has gone.
func (a *Agent) undo(e *decision) {
	a.placement.release(e.pod.UID)
	a.releaseDevices(e.pod.UID)
	a.decisions.mu.Lock()
	e.ended = true
	a.decisions.mu.Unlock()
	a.decisions.wake()
}

// takeNews takes up the verdicts that were made, and asks again for the pods that
// wait: devices may have come, or a pod may not have.
func (a *Agent) takeNews() {
	d := a.decisions
	var uids []types.UID
	d.mu.Lock()
	for uid, e := range d.all {
		switch {
		case e.dropped && e.ended:
			delete(d.all, uid)
			uids = append(uids, uid)
		case e.made && !e.dropped:
			uids = append(uids, uid)
		}
	}
	changed := d.changed
	d.changed = false
	d.mu.Unlock()
	slices.Sort(uids)
	for _, uid := range uids {
		if pod, ok := a.pods.Pod(uid); ok && pod.DeletionTimestamp == nil {
			a.add(pod)
		} else {
			a.dropDecision(uid)
		}
	}
	switch {
	case changed:
		a.retryWaiting(nil)
	case len(uids) > 0:
		a.retryWaiting(d.paused)
	}
}

// paused tells whether a pod was decided on just now.
func (d *decisions) paused(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[uid] != nil
}

// placeWithDevices gives a pod its CPUs, its memory and its devices, or tells why
// it cannot have them. It is undecided if plugins have to be asked.
func (a *Agent) placeWithDevices(pod *v1.Pod) *Rejection {
	if a.cfg.Devices == nil {
		return a.placement.admit(pod)
	}
	if r := a.decisions.held(pod.UID); r != nil {
		return r
	}
	adm, err := a.cfg.Devices.Begin(a.decisions.ctx, pod)
	switch {
	case err != nil:
		return deviceRejection(err)
	case !adm.Asks():
		return a.placement.admit(pod)
	case adm.Settled():
		return a.placement.admit(pod, adm)
	}
	a.decide(pod)
	return undecided
}

// decide begins a decision.
func (a *Agent) decide(pod *v1.Pod) {
	d := a.decisions
	ctx, cancel := context.WithTimeout(d.ctx, decideTimeout)
	e := &decision{pod: pod, since: time.Now(), cancel: cancel}
	d.mu.Lock()
	d.all[pod.UID] = e
	d.mu.Unlock()
	a.mu.Lock()
	delete(a.admitted, pod.UID) // if it was, in an earlier life of the pod
	a.mu.Unlock()
	a.sweeps.Go(func() {
		defer cancel()
		verdict := a.allocate(ctx, pod)
		d.mu.Lock()
		e.made, e.verdict = true, verdict
		dropped := e.dropped
		d.mu.Unlock()
		if dropped {
			a.undo(e)
		}
		d.wake()
	})
}

// allocate makes a decision. The devices are chosen first, and no plugin allocates
// before CPUs and memory are found that go with them, and taken.
func (a *Agent) allocate(ctx context.Context, pod *v1.Pod) *Rejection {
	var again *Rejection
	for range decideAttempts {
		adm, r := a.choose(ctx, pod)
		if r != nil {
			return r
		}
		if again = a.placement.admit(pod, adm); again != nil {
			continue // others were given CPUs meanwhile
		}
		err := adm.Commit()
		if err == nil {
			return nil
		}
		a.placement.release(pod.UID)
		again = deviceRejection(err)
		if !errors.Is(err, devicemgr.ErrChanged) {
			break
		}
	}
	return again
}

// choose finds the devices of a pod. Plugins are asked for their preferences,
// without a lock; so CPUs and memory are looked at, and not taken.
func (a *Agent) choose(ctx context.Context, pod *v1.Pod) (*devicemgr.Admission, *Rejection) {
	adm, err := a.cfg.Devices.Begin(ctx, pod)
	if err != nil {
		return nil, deviceRejection(err)
	}
	result, err := a.nodeNow().Place(fit.Pod(pod), adm)
	if err != nil {
		return nil, deviceRejection(err)
	}
	return result.Others[0].(*devicemgr.Admission), nil
}

// nodeNow is the node with what has been given.
func (a *Agent) nodeNow() fit.Node {
	if a.placement == nil {
		return a.decisions.bare
	}
	a.placement.mu.Lock()
	defer a.placement.mu.Unlock()
	return a.placement.node
}

// deviceRejection says what an error means for the pod: to wait for a plugin, or
// to be turned away with the kubelet's reason.
func deviceRejection(err error) *Rejection {
	var notYet *devicemgr.NotYetError
	var misplaced *topology.Rejection
	var refused *devicemgr.PluginError
	if errors.As(err, &notYet) {
		return &Rejection{Reason: reasonDevicesAway, Message: notYet.Error(), RetryUntil: notYet.Until}
	}
	r := &Rejection{Reason: topology.ReasonUnexpected, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	if errors.As(err, &misplaced) {
		r = placementRejection(err)
	}
	r.final = errors.As(err, &refused)
	return r
}
