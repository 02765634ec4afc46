package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// agents are the conditions that the agent writes. All other conditions belong to other
// writers.
var agents = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers, v1.DisruptionTarget,
	v1.PodResizePending, v1.PodResizeInProgress, "AllContainersRestarting",
}

// Others returns the conditions of a pod that the agent does not write.
func Others(list []v1.PodCondition) (out []v1.PodCondition) {
	for _, c := range list {
		if !slices.Contains(agents, c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// Merge returns a status of the agent, to which the conditions of other writers in old
// are added.
func Merge(status v1.PodStatus, old *v1.PodStatus) v1.PodStatus {
	out := *status.DeepCopy()
	if out.QOSClass == "" {
		out.QOSClass = old.QOSClass
	}
	if out.NominatedNodeName == "" {
		out.NominatedNodeName = old.NominatedNodeName
	}
	for _, c := range Others(old.Conditions) {
		if !slices.ContainsFunc(out.Conditions, func(n v1.PodCondition) bool { return n.Type == c.Type }) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

// carry prevents a writer from overwriting a newer status of the agent. The writer read the pod as
// before and stores to; now is the current pod. If the writer has not changed the status, to gets
// the status of now.
func carry(to, before, now Object) {
	p, ok := to.(*v1.Pod)
	old, was := before.(*v1.Pod)
	if ok && was && before != now && equality.Semantic.DeepEqual(&p.Status, &old.Status) {
		p.Status = now.(*v1.Pod).Status
	}
}

// KeepServers restores the metadata that only the server writes, from old.
func KeepServers(o, old Object) {
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetDeletionTimestamp(old.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	o.SetGeneration(old.GetGeneration())
	o.SetGenerateName(old.GetGenerateName())
	o.SetSelfLink("")
	o.SetResourceVersion(old.GetResourceVersion())
}

// Unchanged reports whether two versions of an object differ at most in the times and authors of
// changes.
func Unchanged(a, b Object) bool {
	x, y := shallow(a), shallow(b)
	for _, o := range []Object{x, y} {
		o.SetResourceVersion("")
		fields := slices.Clone(o.GetManagedFields())
		for i := range fields {
			fields[i].Time = nil
		}
		o.SetManagedFields(fields)
	}
	return equality.Semantic.DeepEqual(x, y)
}
