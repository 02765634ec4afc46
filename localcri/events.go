//go:build linux

package localcri

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/wake"
)

// eventQueue is the number of events that may wait for a subscriber. As in CRI-O, events beyond
// this number are dropped.
const eventQueue = 1000

// event is one event. Statuses are added when it is delivered, so that queues stay small.
type event struct {
	kind runtimeapi.ContainerEventType
	id   string // ID of a container or sandbox
	at   int64  // ns since 1970
	pod  *pod
}

func (e event) response() *runtimeapi.ContainerEventResponse {
	sandbox, containers := e.pod.status()
	return &runtimeapi.ContainerEventResponse{
		ContainerId: e.id, ContainerEventType: e.kind, CreatedAt: e.at, PodSandboxStatus: sandbox, ContainersStatuses: containers,
	}
}

// broadcaster delivers events to subscribers. A slow subscriber does not delay others. Events
// that come before the first subscriber are kept for it, for example the ends of containers
// that are found at the start.
type broadcaster struct {
	mu     sync.Mutex
	subs   map[*subscriber]struct{}
	first  *subscriber // collects events for the first subscriber; nil once there is one
	closed bool
}

type subscriber struct {
	queue    []event
	overflow bool
	wake     wake.Signal // set when there are new events
}

func newBroadcaster() *broadcaster {
	return &broadcaster{subs: map[*subscriber]struct{}{}, first: newSubscriber()}
}

func newSubscriber() *subscriber { return &subscriber{wake: wake.New()} }

func (s *subscriber) add(e event) {
	if s.overflow {
		return
	}
	if len(s.queue) >= eventQueue {
		s.queue, s.overflow = nil, true
	} else {
		s.queue = append(s.queue, e)
	}
	s.wake.Set()
}

func (b *broadcaster) publish(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first != nil {
		b.first.add(e)
	}
	for s := range b.subs {
		s.add(e)
	}
}

func (b *broadcaster) subscribe() *subscriber {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.first
	if s == nil || s.overflow { // a new subscriber lists everything anyway
		s = newSubscriber()
	}
	b.first = nil
	b.subs[s] = struct{}{}
	if b.closed {
		s.wake.Set()
	}
	return s
}

func (b *broadcaster) unsubscribe(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
}

// next returns all waiting events of a subscriber, and waits if there are none.
func (b *broadcaster) next(s *subscriber) ([]event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.overflow:
		return nil, errorf(codes.ResourceExhausted, "more than %d events were not read in time; list again", eventQueue)
	case len(s.queue) == 0 && b.closed:
		return nil, errStopped
	}
	out := s.queue
	s.queue = nil
	return out, nil
}

func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.subs {
		s.wake.Set()
	}
}

// GetContainerEvents sends events to ch until ctx ends, or until events were dropped. Then the
// error is ResourceExhausted, and the caller has to list again. established is called once events
// are collected.
func (r *Runtime) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	if err := r.await(ctx); err != nil {
		return err
	}
	s := r.events.subscribe()
	defer r.events.unsubscribe(s)
	if established != nil {
		established(nil)
	}
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return coded(context.Cause(ctx))
		}
		batch, err := r.events.next(s)
		if err != nil {
			return err
		}
		for _, e := range batch {
			select {
			case ch <- e.response():
			case <-ctx.Done():
				return coded(context.Cause(ctx))
			}
		}
	}
}

// tell publishes an event of a container. If id is the sandbox's ID, it publishes an event of the
// sandbox. at is the time in ns since 1970. If it is 0, the time is now.
func (p *pod) tell(kind runtimeapi.ContainerEventType, id string, at int64) {
	if at == 0 {
		at = time.Now().UnixNano()
	}
	p.rt.events.publish(event{kind, id, at, p})
}
