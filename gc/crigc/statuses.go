package crigc

import (
	"context"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
)

// statuses remembers of each container what does not change. It is bounded by the
// containers of the last list.
type statuses struct {
	ask func(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)

	// mu is held over no call of the runtime. Two lists at a time may ask for the
	// same container twice, and each stores what it found.
	mu    sync.Mutex
	known map[string]map[string]status // by the pod's UID and the container's ID
}

// status is what is remembered of a container.
type status struct {
	log      string
	mounts   []string // images
	finished int64    // Unix nanoseconds; 0 while it has not ended
}

// of returns what is known of each of the containers, and asks for those that
// are new or have ended since. One that is gone meanwhile is left out. They are
// all that a pod has, or with "" all there are: what is known of others is
// forgotten.
func (s *statuses) of(ctx context.Context, list []*runtimeapi.Container, pod string, wanted func(*runtimeapi.Container) bool) (map[string]status, error) {
	out := make(map[string]status, len(list))
	next := map[string]map[string]status{}
	note := func(c *runtimeapi.Container, st status) {
		out[c.GetId()] = st
		uid := c.GetLabels()[cri.LabelPodUID]
		if next[uid] == nil {
			next[uid] = map[string]status{}
		}
		next[uid][c.GetId()] = st
	}
	for _, c := range list {
		s.mu.Lock()
		st, ok := s.known[c.GetLabels()[cri.LabelPodUID]][c.GetId()]
		s.mu.Unlock()
		ended := c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		// A container that runs is asked for once, and again when it has ended.
		if ok && (!ended || st.finished != 0) || !ok && !wanted(c) {
			if ok {
				note(c, st)
			}
			continue
		}
		resp, err := s.ask(ctx, c.GetId(), false)
		if cri.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		st = status{log: resp.GetStatus().GetLogPath(), finished: resp.GetStatus().GetFinishedAt()}
		for _, m := range resp.GetStatus().GetMounts() {
			if image := m.GetImage().GetImage(); image != "" {
				st.mounts = append(st.mounts, image)
			}
		}
		note(c, st)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A list of one pod says nothing of the others.
	switch known := next[pod]; {
	case pod == "" || s.known == nil:
		s.known = next
	case known == nil:
		delete(s.known, pod)
	default:
		s.known[pod] = known
	}
	return out, nil
}
