package cpumgr

import (
	"cmp"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Step says that the cpuset of a container has to be set.
type Step struct {
	// Pod is its UID and Container the name. Both are "" for all containers
	// of the shared pool.
	Pod, Container string
	// CPUs are empty where a shared pool has none left, as strict reservation
	// allows: a kernel has no such cpuset, and those containers have to go.
	CPUs numa.CPUSet
}

// Diff lists what has to be done to running containers when one state follows
// another. In this order, nobody enters CPUs that are to be another's own before
// all others have left them: first all shrink, then those that get CPUs grow. A
// container that moves altogether does so between the two; only where several do,
// which no method of this package makes them do, may they meet for a moment.
//
// Containers that do not run need no step, and start with their [State.Wanted]
// once the steps are done. A container that has had CPUs of its own and has none
// now, since it was released, is told to join the shared pool. Steps for one
// container may be two: to leave some CPUs first, and to enter others later. It
// compares decisions; whether a container has the cpuset that from says is the
// caller's to know.
func Diff(from, to State) []Step {
	type ranked struct {
		Step
		rank int // 0 the shared pool shrinks, 1 others shrink, 2 moves, 3 growth
	}
	var all []ranked
	add := func(pod, container string, a, b numa.CPUSet) {
		if a.Equal(b) {
			return
		}
		kept := a.Intersect(b)
		first := 1
		if pod == "" {
			first = 0
		}
		// Nothing can be kept, and the container is to leave as early as those that
		// shrink.
		if b.Empty() {
			all = append(all, ranked{Step{pod, container, b}, first})
			return
		}
		// A kernel takes no empty cpuset, so that there is no step in between.
		if kept.Empty() {
			all = append(all, ranked{Step{pod, container, b}, 2})
			return
		}
		if !kept.Equal(a) {
			all = append(all, ranked{Step{pod, container, kept}, first})
		}
		if !kept.Equal(b) {
			all = append(all, ranked{Step{pod, container, b}, 3})
		}
	}
	add("", "", from.shared, to.shared)
	for uid, name := range containersOf(from, to) {
		add(uid, name, from.Wanted(uid, name), to.Wanted(uid, name))
	}
	// Stable: within a rank the order is that of UIDs and names, and the same each
	// time.
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	steps := make([]Step, len(all))
	for i, r := range all {
		steps[i] = r.Step
	}
	return steps
}

// containersOf goes over the containers of which one of two states knows, in
// order.
func containersOf(a, b State) func(yield func(uid, name string) bool) {
	return func(yield func(uid, name string) bool) {
		uids := slices.Compact(slices.Sorted(slices.Values(append(a.Pods(), b.Pods()...))))
		for _, uid := range uids {
			var names []string
			for _, c := range slices.Concat(a.pods[uid].Containers, b.pods[uid].Containers) {
				names = append(names, c.Name)
			}
			slices.Sort(names)
			for _, name := range slices.Compact(names) {
				if !yield(uid, name) {
					return
				}
			}
		}
	}
}
