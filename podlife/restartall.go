package podlife

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// RestartsAll returns a container whose end restarts all containers of the pod (KEP-5532), and
// its instance that ended. It returns nil if there is none, or if the restart has been done.
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

// wantsRestartOfAll reports whether the end of the instance o restarts all containers of the pod by
// a restart rule of c. An instance that this process has just killed has no exit code that a rule
// could match.
func wantsRestartOfAll(c *v1.Container, o *observed.Container) bool {
	return o != nil && o.State == observed.Exited && o.ExitCode != nil && podmeta.RestartsAllAfter(c, *o.ExitCode)
}

// resets lists the IDs of all container instances of a pod that is to start over. The instances
// whose end asks for the restart come last. If the agent ends in between, these last instances are
// still there, and the restart is continued.
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
