package pleg

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/wake"
)

// Events that wait for their reader. An event only says that a pod changed: readers get the
// state from View. So events of one pod may be merged, but no pod is left out.

// ChangeType describes what happened to a container or a sandbox.
type ChangeType string

// The types of change. A ready sandbox counts as started, a sandbox that is not ready as died.
const (
	ContainerStarted ChangeType = "ContainerStarted"
	ContainerDied    ChangeType = "ContainerDied"
	ContainerRemoved ChangeType = "ContainerRemoved"
	// ContainerChanged is any other change: created, or unknown.
	ContainerChanged ChangeType = "ContainerChanged"
	// PodSync means that the pod should be checked although no change is known. It follows the end
	// of a pod that was never inspected.
	PodSync ChangeType = "PodSync"
)

// Change is one difference between two inspections of a pod. A container that was created and
// removed between them is not seen.
type Change struct {
	ID      string // the container's or sandbox's; "" for PodSync
	Type    ChangeType
	Sandbox bool
	// Container is the container's name in the pod's spec, or "" for a sandbox.
	Container string
	// ExitCode is the exit code, for ContainerDied and ContainerRemoved; -1 if it is unknown.
	ExitCode int32
}

// Event has the changes of one pod, in order: containers before sandboxes, and the end of a
// container before its removal.
type Event struct {
	UID types.UID
	// Namespace and Name identify the pod, also after its removal. They are "" if the runtime has
	// not reported them.
	Namespace, Name string
	Changes         []Change
}

// maxChanges limits the changes in an event that waits for its reader. Older changes are
// dropped.
const maxChanges = 256

// tellBurst events of a pod are sent without delay; further events follow at tellEvery. This
// limits the cost of a runtime that reports another state at each inspection: each event would
// lead to an inspection, and that to the next event.
const (
	tellBurst = 20
	tellEvery = time.Second
)

// outbox sends events one at a time, and merges waiting events of the same pod.
type outbox struct {
	// ch has no buffer, so waiting events stay in the boxes, where they can be merged.
	ch     chan Event
	signal wake.Signal

	mu    sync.Mutex
	queue []types.UID
	boxes map[types.UID]*box
	// sweep is changed after each removal of old boxes. A box is not removed as soon as its
	// events were received, since paid is needed for later events.
	sweep int // number of boxes at which old ones are removed
}

// box has the waiting changes of one pod.
type box struct {
	namespace, name string

	changes []Change  // changes that the reader has not received yet
	waits   bool      // the box is in the queue, or is delayed by pace
	paid    time.Time // the time up to which earlier events use up the rate; see pace
}

// newOutbox returns an outbox that sends nothing before run is called.
func newOutbox() *outbox {
	return &outbox{ch: make(chan Event), signal: wake.New(), boxes: map[types.UID]*box{}, sweep: minSweep}
}

// put adds changes to the pod's next event. It never blocks. It is called with Manager.mu held;
// lock order: Manager.mu, then o.mu.
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
		// The event waits already; the changes are added to it.
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

// enqueue appends a pod to the queue. Each pod is queued at most once. Called with o.mu held.
func (o *outbox) enqueue(uid types.UID) {
	o.queue = append(o.queue, uid)
	o.signal.Set()
}

// minSweep is the smallest number of boxes at which a sweep is made.
const minSweep = 256

// add creates a pod's box.
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

// pace counts one event and returns its delay. It is a token bucket: each event moves paid ahead
// of the clock by tellEvery.
func (b *box) pace(now time.Time) time.Duration {
	if b.paid.Before(now) {
		b.paid = now
	}
	ahead := b.paid.Sub(now)
	b.paid = b.paid.Add(tellEvery)
	return max(0, ahead-(tellBurst-1)*tellEvery)
}

// take removes and returns the event of the pod that has waited longest, or false. Later changes
// of the pod become a new event.
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

// run sends events to the channel until ctx ends, then drops the rest.
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
