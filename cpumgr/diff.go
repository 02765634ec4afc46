package cpumgr

import (
	"cmp"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Step is one change of one cpuset.
type Step struct {
	// Pod is the UID of the pod, and Container is the name of the container. Both are "" if the
	// step is for all containers that use the shared pool.
	Pod, Container string
	// CPUs is the new cpuset. It is empty if strict reservation leaves no CPU to the shared pool.
	// The kernel does not accept an empty cpuset for tasks, so these containers have to be
	// stopped.
	CPUs numa.CPUSet
}

// Diff returns the cpuset changes that lead running containers from the state current to the
// state next. Their order keeps CPUs exclusive: first cpusets that lose CPUs shrink, then
// containers get their new cpusets that share no CPU with the old ones, then cpusets that gain
// CPUs grow. Two containers may share a CPU for a moment only if several move at once, which no
// method of this package causes.
//
// A container may need two steps: it leaves CPUs first, and gets others later. A container whose
// CPUs were released joins the shared pool. Containers that are not running need no step: they
// are started with [State.Wanted] after the steps. Diff compares only the states. The caller must
// know that the cpusets of the cgroups match the state current.
func Diff(current, next State) []Step {
	type ranked struct {
		Step
		rank int // 0: the shared pool shrinks; 1: others shrink; 2: moves; 3: growth
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
		// No CPU is kept; the container leaves its CPUs together with those that shrink.
		if b.Empty() {
			all = append(all, ranked{Step{pod, container, b}, first})
			return
		}
		// The kernel does not accept an empty cpuset, so there is no step in between.
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
	add("", "", current.shared, next.shared)
	for uid, name := range containersOf(current, next) {
		add(uid, name, current.Wanted(uid, name), next.Wanted(uid, name))
	}
	// A stable sort keeps the order of UIDs and names within a rank.
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	steps := make([]Step, len(all))
	for i, r := range all {
		steps[i] = r.Step
	}
	return steps
}

// containersOf iterates over the containers of either state, in order.
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
