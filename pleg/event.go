package pleg

import (
	"context"
	"sync"

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

// outbox hands events on one at a time and merges those of one pod that wait.
type outbox struct {
	ch     chan Event
	signal chan struct{}

	mu      sync.Mutex
	queue   []types.UID
	waiting map[types.UID][]Change
}

func newOutbox() *outbox {
	return &outbox{ch: make(chan Event), signal: make(chan struct{}, 1), waiting: map[types.UID][]Change{}}
}

func (o *outbox) put(uid types.UID, changes []Change) {
	o.mu.Lock()
	old, ok := o.waiting[uid]
	if !ok {
		o.queue = append(o.queue, uid)
		o.waiting[uid] = changes
	} else {
		all := append(old, changes...)
		o.waiting[uid] = all[max(0, len(all)-maxChanges):]
	}
	o.mu.Unlock()
	select {
	case o.signal <- struct{}{}:
	default:
	}
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
