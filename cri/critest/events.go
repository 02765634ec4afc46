package critest

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/wake"
)

// stream is one reader of events. Its queue has no bound.
type stream struct {
	mu     sync.Mutex
	queue  []*runtimeapi.ContainerEventResponse
	over   bool
	signal wake.Signal
}

func (s *stream) put(ev *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	s.queue = append(s.queue, ev)
	s.mu.Unlock()
	s.signal.Set()
}

func (s *stream) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.signal.Set()
}

func (s *stream) take() (ev *runtimeapi.ContainerEventResponse, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, s.over
	}
	ev, s.queue = s.queue[0], s.queue[1:]
	return ev, false
}

// emit sends an event to every reader. Runtime.mu is held.
func (r *Runtime) emit(kind runtimeapi.ContainerEventType, id string, s *sandbox) {
	if r.losing || len(r.streams) == 0 {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: s.status(),
	}
	for _, c := range s.has {
		ev.ContainersStatuses = append(ev.ContainersStatuses, c.status())
	}
	for st := range r.streams {
		st.put(ev)
	}
}

// GetContainerEvents sends events until ctx or the runtime ends.
func (r *Runtime) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	if _, err := r.enter(ctx, "GetContainerEvents", ""); err != nil {
		return err
	}
	r.mu.Lock()
	if r.noEvents {
		r.mu.Unlock()
		return status.Error(codes.Unimplemented, "no event stream")
	}
	s := &stream{signal: wake.New()}
	r.streams[s] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.streams, s)
		r.mu.Unlock()
	}()
	if opened != nil {
		opened(nil)
	}
	for {
		ev, over := s.take()
		switch {
		case over:
			return io.EOF
		case ev == nil:
			select {
			case <-s.signal:
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			select {
			case ch <- ev:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}
