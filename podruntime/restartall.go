package podruntime

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

// restartAll removes all containers but not their logs, so that the next plan starts them anew. The
// crash-loop back-off delays repeated restarts of a pod as it delays repeated restarts of a single
// container.
func (s *syncing) restartAll(ctx context.Context, ids []string) (done bool) {
	const action = "RestartAllContainers"
	// Not nil: the plan found the same by the same observation.
	c, o := podlife.RestartsAll(s.pod, s.obs)
	if err := s.crashLoop(c, o); err != nil {
		s.m.runs.note(s.pod.UID, c.Name, err)
		s.res.add(action, s.pod.Name, err)
		return false
	}
	var live []*observed.Container
	for _, id := range ids {
		if o := byID(s.obs, id); o.State != observed.Exited {
			live = append(live, o)
		}
	}
	// A grace of 0 seconds: what they do is to be repeated anyway. StopContainer
	// still gives them minGrace.
	errs := parallel(live, func(o *observed.Container) error {
		return s.m.killContainer(ctx, s.pod, s.obs, o, podlife.Cause{Grace: new(int64)}, "Stopping container "+o.Name, nil)
	})
	for i, err := range errs {
		if err != nil {
			s.res.add(action, live[i].Name, err)
			return false
		}
	}
	// A copy, as drop moves the elements of the slice.
	last := *o
	// One by one and in this order: an interruption leaves the sources, which ask
	// for the rest.
	for _, id := range ids {
		if err := s.m.discard(ctx, s.pod.UID, id); err != nil {
			s.res.add(action, s.pod.Name, fmt.Errorf("remove container %s: %w", id, err))
			return false
		}
		s.drop(id)
	}
	s.m.restarted(s.pod, c, &last)
	s.res.add(action, s.pod.Name, nil)
	return true
}
