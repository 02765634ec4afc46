package pleg

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ChangeType says what happened to a container or a sandbox.
type ChangeType string

// The types of change. A sandbox that is ready counts as started, one that is
// not as died.
const (
	ContainerStarted ChangeType = "ContainerStarted"
	ContainerDied    ChangeType = "ContainerDied"
	ContainerRemoved ChangeType = "ContainerRemoved"
	// ContainerChanged is any other change: created, or unknown.
	ContainerChanged ChangeType = "ContainerChanged"
	// PodSync asks for a look at the pod although nothing is known to have
	// changed.
	PodSync ChangeType = "PodSync"
)

// Change is one thing that happened.
type Change struct {
	ID      string // the container's or sandbox's; "" for PodSync
	Type    ChangeType
	Sandbox bool
}

// Event tells what happened to one pod, in order.
type Event struct {
	UID     types.UID
	Changes []Change
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
	ch     chan Event
	signal chan struct{}

	mu      sync.Mutex
	queue   []types.UID
	waiting map[types.UID][]Change
	paid    map[types.UID]time.Time // until when the events so far count
	sweep   int                     // size of paid at which those of long ago are forgotten
}

func newOutbox() *outbox {
	return &outbox{
		ch: make(chan Event), signal: make(chan struct{}, 1), waiting: map[types.UID][]Change{},
		paid: map[types.UID]time.Time{}, sweep: minSweep,
	}
}

func (o *outbox) put(uid types.UID, changes []Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, ok := o.waiting[uid]
	if ok {
		all := append(old, changes...)
		o.waiting[uid] = all[max(0, len(all)-maxChanges):]
		return
	}
	o.waiting[uid] = changes
	if wait := o.pace(uid, time.Now()); wait > 0 {
		time.AfterFunc(wait, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.enqueue(uid)
		})
		return
	}
	o.enqueue(uid)
}

func (o *outbox) enqueue(uid types.UID) {
	o.queue = append(o.queue, uid)
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// minSweep keeps the map from being looked through for a few pods.
const minSweep = 256

// pace counts one event of a pod, and returns how long it has to wait.
func (o *outbox) pace(uid types.UID, now time.Time) time.Duration {
	if len(o.paid) >= o.sweep {
		maps.DeleteFunc(o.paid, func(_ types.UID, until time.Time) bool { return until.Before(now) })
		o.sweep = max(2*len(o.paid), minSweep)
	}
	paid := o.paid[uid]
	if paid.Before(now) {
		paid = now
	}
	o.paid[uid] = paid.Add(tellEvery)
	return max(0, paid.Sub(now)-(tellBurst-1)*tellEvery)
}

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
	ev := Event{UID: uid, Changes: o.waiting[uid]}
	delete(o.waiting, uid)
	return ev, true
}

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
