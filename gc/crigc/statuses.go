package crigc

import (
	"context"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
)

// statuses caches those parts of container statuses that do not change. It has only the
// containers of the last list.
type statuses struct {
	ask func(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)

	// mu is not held during calls of the runtime. Two concurrent lists may read the same
	// container twice.
	mu    sync.Mutex
	known map[string]map[string]status // by the pod's UID and the container's ID
}

// status is the cached data of a container.
type status struct {
	log      string
	mounts   []string // IDs of mounted images
	finished int64    // Unix nanoseconds; 0 while it has not ended
}

// of returns the data of the containers in list, and reads the data of containers that are new or
// have ended since. It leaves out containers that are gone. list has all containers of a pod, or
// all containers if pod is "". Containers that are not in list are dropped from the cache.
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
		// A container is read once while it runs, and again after its end.
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
	// A list of one pod does not affect the others.
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
