package podruntime

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// RestartsAll reports whether a container has ended in a way that has all
// containers of the pod start over (KEP-5532), and that is still to be done.
func RestartsAll(pod *v1.Pod, obs *observed.Pod) bool {
	source, _ := restartSource(pod, obs.Settled())
	return source != nil
}

// restartSource finds a container that wants the pod to start over, and the
// instance that says so.
func restartSource(pod *v1.Pod, obs *observed.Pod) (*v1.Container, *observed.Container) {
	if pod.DeletionTimestamp != nil {
		// A pod that is being deleted does not start over.
		return nil, nil
	}
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			// Only the newest instance counts: earlier ones have had their restart.
			if o := obs.Newest(list[i].Name); wantsRestartOfAll(&list[i], o) {
				return &list[i], o
			}
		}
	}
	return nil, nil
}

// wantsRestartOfAll reports whether an instance ended by itself in such a way.
// One that was killed here a moment ago has no exit code that a rule could be
// meant for.
func wantsRestartOfAll(c *v1.Container, o *observed.Container) bool {
	return o != nil && o.State == observed.Exited && o.ExitCode != UnknownExit && podmeta.RestartsAllAfter(c, o.ExitCode)
}

// resets lists every instance of the containers of a pod that is to start
// over. The newest ones of those that want it come last, after the instances
// before them: until all others are gone they show that it is to be done,
// whatever happens to the agent.
func resets(pod *v1.Pod, obs *observed.Pod) []string {
	if source, _ := restartSource(pod, obs); source == nil {
		return nil
	}
	var targets, sources []string
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			newest := obs.Newest(list[i].Name)
			for j := range obs.Containers {
				switch o := &obs.Containers[j]; {
				case o.Name != list[i].Name:
				case o == newest && wantsRestartOfAll(&list[i], o):
					sources = append(sources, o.ID)
				default:
					targets = append(targets, o.ID)
				}
			}
		}
	}
	return append(targets, sources...)
}

// restartAll removes all containers but not their logs, so that the next plan
// begins anew. A pod that keeps starting over waits like a container that
// keeps crashing.
func (s *syncing) restartAll(ctx context.Context, ids []string) (done bool) {
	const action = "RestartAllContainers"
	// Not nil: the plan found the same by the same observation.
	c, o := restartSource(s.pod, s.obs)
	if err := s.crashLoop(c, o); err != nil {
		s.m.noteStart(s.pod.UID, c.Name, err)
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
		return s.m.killContainer(ctx, s.pod, s.obs.IPs(), o, podlife.Cause{Grace: new(int64)}, "Stopping container "+o.Name, nil)
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
		if err := s.m.discard(ctx, id); err != nil {
			s.res.add(action, s.pod.Name, fmt.Errorf("remove container %s: %w", id, err))
			return false
		}
		s.drop(id)
	}
	s.m.crash.restarted(s.pod, c, &last)
	s.res.add(action, s.pod.Name, nil)
	return true
}
