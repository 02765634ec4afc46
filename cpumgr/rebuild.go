package cpumgr

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Problem describes what is wrong with CPUs that a container is said to have. It is
// a report and no failure: the state that comes with it is good.
type Problem struct {
	// Pod is its UID and Container the name, which is "" where the CPUs are
	// the whole pod's. Both are "" where the shared pool is meant.
	Pod, Container string
	CPUs           numa.CPUSet
	Err            error
}

// Error is the problem in a line.
func (p Problem) Error() string {
	who := "shared pool"
	if p.Pod != "" {
		who = "pod " + p.Pod
	}
	if p.Container != "" {
		who += fmt.Sprintf(", container %q", p.Container)
	}
	return fmt.Sprintf("%s: CPUs %q: %v", who, p.CPUs, p.Err)
}

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// Rebuild makes a state from what pods have: from the cpusets of their live
// cgroups, or from what was kept of them ([PodCPUs.ByContainer]), by UID and
// container name. CPUs under the name "" are the pod's, and none that it has no
// pool; where the name is missing, the CPUs of its containers tell.
//
// Containers that are to have CPUs of their own keep just those they have. The
// exceptions are reported and share the pool: CPUs that are offline, reserved or
// another's, and numbers that are not what the container asks for. Where two
// pods have the same CPU, the one that comes first in pods keeps it: those that a
// file reports are better first than those that only a cpuset reports. The state is
// good whatever the problems. Pods that are terminating have to be among pods: the
// CPUs of those that are not are given to others.
func Rebuild(p Policy, pods []numa.Pod, has map[string]map[string]numa.CPUSet) (State, []Problem) {
	s := p.Start()
	var problems []Problem
	known := map[string]bool{}
	for _, pod := range pods {
		// A pod that is listed twice counts once, where it stands first.
		if known[pod.UID] {
			continue
		}
		known[pod.UID] = true
		if len(has[pod.UID]) == 0 {
			continue
		}
		var more []Problem
		s, more = p.Adopt(s, pod, has[pod.UID])
		problems = append(problems, more...)
	}
	// Sorted, so that the same input gives the same reports.
	for _, uid := range sorted(has) {
		if known[uid] {
			continue
		}
		for _, name := range sorted(has[uid]) {
			if cpus := has[uid][name]; !cpus.Empty() {
				problems = append(problems, Problem{uid, name, cpus, errors.New("there is no such pod")})
			}
		}
	}
	return s, problems
}

// Adopt lets containers of a pod keep CPUs. See [Policy] and [Rebuild].
//
// FullPCPUsOnly and the nodes that CPUs are on matter to what is given anew, and
// are no reason to take CPUs from what runs.
func (p *Static) Adopt(s State, pod numa.Pod, has map[string]numa.CPUSet) (State, []Problem) {
	if n := p.wantsWhole(pod); n > 0 {
		if next, problems, ok := p.adoptPool(s, pod, has, n); ok {
			return next, problems
		}
	}
	var problems []Problem
	if pool := has[""]; !pool.Empty() {
		problems = append(problems, Problem{pod.UID, "", pool, errors.New("the pod does not get CPUs of its own")})
	}
	for _, c := range pod.Containers {
		cpus, ok := has[c.Name]
		n := p.wants(pod, c)
		if !ok || n == 0 {
			continue
		}
		if err := p.adoptable(s, pod.UID, c.Kind, cpus, n); err != nil {
			problems = append(problems, Problem{pod.UID, c.Name, cpus, err})
			continue
		}
		s = s.with(pod.UID, ContainerCPUs{Name: c.Name, Kind: c.Kind, CPUs: cpus})
	}
	return s, problems
}

// adoptPool lets a pod keep a pool of its own. It says false where there is none:
// then containers may have CPUs of their own nevertheless.
func (p *Static) adoptPool(s State, pod numa.Pod, has map[string]numa.CPUSet, n int) (State, []Problem, bool) {
	pool, named := has[""]
	// Cpusets of cgroups name no pool; if the containers have together just as
	// many CPUs as the pod is to have, these are it.
	if !named {
		for _, c := range pod.Containers {
			pool = pool.Union(has[c.Name])
		}
		named = pool.Len() == n
	}
	if !named || pool.Empty() {
		return s, nil, false
	}
	// Without its pool, the whole pod shares: parts of a pool cannot be kept.
	if err := p.adoptable(s, pod.UID, numa.Regular, pool, n); err != nil {
		return s, []Problem{{pod.UID, "", pool, err}}, true
	}
	rec := PodCPUs{UID: pod.UID, Pool: pool}
	var problems []Problem
	var staying numa.CPUSet // what sidecars and regular containers have for themselves
	for _, c := range pod.Containers {
		cpus, ok := has[c.Name]
		if !ok {
			continue
		}
		want := p.wants(pod, c)
		var err error
		switch {
		case want > 0 && cpus.Len() != want:
			err = fmt.Errorf("they are %d, and the container asks for %d", cpus.Len(), want)
		case cpus.Empty() || !cpus.SubsetOf(pool):
			err = fmt.Errorf("the pod's are %q", pool)
		case cpus.IntersectLen(staying) > 0:
			err = fmt.Errorf("CPUs %s are another container's own", cpus.Intersect(staying))
		}
		if err != nil {
			problems = append(problems, Problem{pod.UID, c.Name, cpus, err})
			continue
		}
		if want > 0 && c.Kind != numa.Init {
			staying = staying.Union(cpus)
		}
		rec.Containers = append(rec.Containers, ContainerCPUs{Name: c.Name, Kind: c.Kind, CPUs: cpus, Pooled: want == 0})
	}
	return s.WithPod(rec), problems, true
}

// adoptable returns why a container cannot keep CPUs, or nil. The checks go from
// what no change of other pods could mend to what depends on them.
func (p *Static) adoptable(s State, podUID string, kind numa.Kind, cpus numa.CPUSet, n int) error {
	if offline := cpus.Minus(p.l.all); !offline.Empty() {
		return fmt.Errorf("CPUs %s are offline", offline)
	}
	if cpus.Len() != n {
		return fmt.Errorf("they are %d, and %d are asked for", cpus.Len(), n)
	}
	if reserved := cpus.Intersect(p.reserved); !reserved.Empty() {
		return fmt.Errorf("CPUs %s are reserved", reserved)
	}
	free := p.free(s, podUID)
	if kind == numa.Init {
		// A sidecar that grew since may have some of them.
		free = free.Union(s.pods[podUID].held())
	}
	if taken := cpus.Minus(free); !taken.Empty() {
		return fmt.Errorf("CPUs %s are %s", taken, s.ownerOf(taken))
	}
	return nil
}

// ownerOf names the first pod that holds some of the CPUs.
func (s State) ownerOf(cpus numa.CPUSet) string {
	for _, uid := range s.Pods() {
		if s.pods[uid].held().IntersectLen(cpus) > 0 {
			return "those of pod " + uid
		}
	}
	return "not free"
}

// ByContainer is what a pod has, in the form that [Rebuild] takes.
func (p PodCPUs) ByContainer() map[string]numa.CPUSet {
	has := map[string]numa.CPUSet{"": p.Pool}
	for _, c := range p.Containers {
		has[c.Name] = c.CPUs
	}
	return has
}

// Validate reports what a state must not be. States that came from p are good;
// this is for those of unknown origin. An empty list means that the state is
// good.
func (p *Static) Validate(s State) []Problem {
	var problems []Problem
	report := func(pod, container string, cpus numa.CPUSet, why string) {
		if !cpus.Empty() {
			problems = append(problems, Problem{pod, container, cpus, errors.New(why)})
		}
	}
	report("", "", s.shared.Minus(p.l.all), "the machine does not have them")
	if p.o.StrictReservation {
		report("", "", s.shared.Intersect(p.reserved), "they are reserved, strictly")
	} else {
		report("", "", p.reserved.Minus(s.shared), "they are reserved, and missing")
	}
	assigned := numa.CPUSet{}
	for _, uid := range s.Pods() {
		pod := s.pods[uid]
		held := pod.held()
		report(uid, "", held.Minus(p.l.all), "the machine does not have them")
		report(uid, "", held.Intersect(p.reserved), "they are reserved")
		report(uid, "", held.Intersect(s.shared), "they are in the shared pool")
		report(uid, "", held.Intersect(assigned), "other pods have them too")
		assigned = assigned.Union(held)
		var staying numa.CPUSet
		for _, c := range pod.Containers {
			if c.CPUs.Empty() {
				problems = append(problems, Problem{uid, c.Name, c.CPUs, errors.New("there are none")})
			}
			if !pod.Pool.Empty() {
				report(uid, c.Name, c.CPUs.Minus(pod.Pool), "they are not the pod's")
			}
			if c.Kind != numa.Init && !c.Pooled {
				report(uid, c.Name, c.CPUs.Intersect(staying), "another container has them too")
				staying = staying.Union(c.CPUs)
			}
		}
	}
	// CPUs that nobody has would never be given to anybody again.
	report("", "", p.pool().Minus(s.shared).Minus(assigned), "nobody has them")
	return problems
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
