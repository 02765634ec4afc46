package cpumgr

import (
	"cmp"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Step is one change of a container's cpuset.
type Step struct {
	// Pod is the UID and Container the name. Both are "" for all containers of the
	// shared pool.
	Pod, Container string
	// CPUs is the new cpuset. It is empty if strict reservation leaves the shared
	// pool no CPU: the kernel has no empty cpuset for tasks, so that those
	// containers have to be stopped.
	CPUs numa.CPUSet
}

// Diff returns the cpuset changes of running containers between two states. Their
// order keeps CPUs exclusive: first all cpusets that lose CPUs shrink, then those
// that get CPUs grow, and containers that move completely do so in between. Only if
// several containers move at once, which no method of this package causes, may two
// share a CPU for a moment.
//
// A container may need two steps: to leave CPUs first, and to enter others later. A
// container whose CPUs were released joins the shared pool. Containers that do not
// run need no step; they start with [State.Wanted] after the steps. Diff compares
// states only: the caller has to know whether the current cpusets match from.
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
		// No CPU is kept; the container leaves as early as those that shrink.
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
