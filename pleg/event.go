package pleg

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Events on their way to whoever reads them. An event is a reason to look at a pod
// and no state: whoever was late reads the newest state by Get, so that events may
// be merged, but a pod is never left out.

// ChangeType describes what happened to a container or a sandbox.
type ChangeType string

// The types of change. A sandbox that is ready counts as started, one that is
// not as died.
const (
	ContainerStarted ChangeType = "ContainerStarted"
	ContainerDied    ChangeType = "ContainerDied"
	ContainerRemoved ChangeType = "ContainerRemoved"
	// ContainerChanged is any other change: created, or unknown.
	ContainerChanged ChangeType = "ContainerChanged"
	// PodSync asks for a look at the pod although nothing is known to have changed.
	// It follows a Refresh, and the end of a pod of which nothing else is to be
	// reported.
	PodSync ChangeType = "PodSync"
)

// Change is one thing that happened between two looks at a pod. What came and went
// between them is not seen.
type Change struct {
	ID      string // the container's or sandbox's; "" for PodSync
	Type    ChangeType
	Sandbox bool
	// Container is the name that the pod has for the container; "" for a sandbox.
	Container string
	// ExitCode is that of a container that ended, for ContainerDied and ContainerRemoved; -1 if
	// nobody saw how it ended.
	ExitCode int32
}

// Event describes what happened to one pod, in order. An end comes before the removal of
// the same container, and containers come before sandboxes.
type Event struct {
	UID types.UID
	// Namespace and Name are the pod's, also after its removal; "" if the runtime has not told
	// them.
	Namespace, Name string
	Changes         []Change
}

// maxChanges is how many changes an event that nobody takes gathers. Then the
// older ones go: who is so late reads the pod's state, not its history.
const maxChanges = 256

// tellBurst events of a pod are sent as soon as there is news; more follow at
// tellEvery. An event makes somebody look at the pod, and with a runtime that shows
// something else at each look that is the next event: it must not go on without
// pauses. It is more than a pod's life needs.
const (
	tellBurst = 20
	tellEvery = time.Second
)

// outbox hands events on one at a time and merges those of one pod that wait.
type outbox struct {
	// ch has no buffer: what waits stays in the boxes, where it can be merged.
	ch     chan Event
	signal chan struct{}

	mu    sync.Mutex
	queue []types.UID
	boxes map[types.UID]*box
	// A box outlives its events for the sake of paid, and would otherwise stay for
	// every pod that ever was.
	sweep int // number of boxes at which those of long ago are removed
}

// box is one pod's.
type box struct {
	namespace, name string

	changes []Change  // that nobody has taken
	waits   bool      // for a taker, or for its time
	paid    time.Time // until when the events so far count
}

// newOutbox returns an outbox that hands nothing on before run is called.
func newOutbox() *outbox {
	return &outbox{ch: make(chan Event), signal: make(chan struct{}, 1), boxes: map[types.UID]*box{}, sweep: minSweep}
}

// put adds changes to what the pod's next event says. It does not block, however
// long nobody reads. Called with Manager.mu held; o.mu is taken inside it and never
// the other way round.
func (o *outbox) put(r *record, changes []Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid := r.uid
	b := o.boxes[uid]
	if b == nil {
		b = o.add(uid)
	}
	b.namespace, b.name = r.namespace, r.name
	if b.waits {
		// The event waits already: it says more, and costs its reader one look as
		// before.
		all := append(b.changes, changes...)
		b.changes = all[max(0, len(all)-maxChanges):]
		return
	}
	b.changes, b.waits = changes, true
	if wait := b.pace(time.Now()); wait > 0 {
		// waits stays true until the event is taken: changes up to then are merged
		// into it.
		time.AfterFunc(wait, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.enqueue(uid)
		})
		return
	}
	o.enqueue(uid)
}

// enqueue puts a pod in line. Each pod is in line at most once. Called with o.mu
// held.
func (o *outbox) enqueue(uid types.UID) {
	o.queue = append(o.queue, uid)
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// minSweep keeps the boxes from being looked through for a few pods.
const minSweep = 256

// add makes a pod's box.
func (o *outbox) add(uid types.UID) *box {
	if len(o.boxes) >= o.sweep {
		now := time.Now()
		maps.DeleteFunc(o.boxes, func(_ types.UID, b *box) bool { return !b.waits && b.paid.Before(now) })
		o.sweep = max(2*len(o.boxes), minSweep)
	}
	b := &box{}
	o.boxes[uid] = b
	return b
}

// pace counts one event, and returns how long it has to wait. paid runs ahead of
// the clock by tellEvery for each event: a token bucket in one value.
func (b *box) pace(now time.Time) time.Duration {
	if b.paid.Before(now) {
		b.paid = now
	}
	ahead := b.paid.Sub(now)
	b.paid = b.paid.Add(tellEvery)
	return max(0, ahead-(tellBurst-1)*tellEvery)
}

// take returns the event of the pod that has waited longest, false if none does.
// From then on further changes are a new event.
func (o *outbox) take() (Event, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return Event{}, false
	}
	uid := o.queue[0]
	if o.queue = o.queue[1:]; len(o.queue) == 0 {
		o.queue = nil // lets the array go
	}
	b := o.boxes[uid]
	ev := Event{UID: uid, Namespace: b.namespace, Name: b.name, Changes: b.changes}
	b.changes, b.waits = nil, false
	return ev, true
}

// run hands events to the channel until ctx ends; what is left then is dropped, as
// nobody reads it. One goroutine, so that events keep their order.
func (o *outbox) run(ctx context.Context) {
	for {
		ev, ok := o.take()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-o.signal:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case o.ch <- ev:
		}
	}
}
