package podlife

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// RestartsAll returns a container that has ended in a way that has all containers of the
// pod start over (KEP-5532), and its instance, while that is still to be done; else nil.
func RestartsAll(pod *v1.Pod, obs *observed.Pod) (*v1.Container, *observed.Container) {
	obs = obs.Settled()
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
	return o != nil && o.State == observed.Exited && o.ExitCode != nil && podmeta.RestartsAllAfter(c, *o.ExitCode)
}

// resets lists every instance of the containers of a pod that is to start
// over. The newest ones of those that want it come last, after the instances
// before them: until all others are gone they show that it is to be done,
// whatever happens to the agent.
func resets(pod *v1.Pod, obs *observed.Pod) []string {
	if source, _ := RestartsAll(pod, obs); source == nil {
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
