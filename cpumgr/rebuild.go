package cpumgr

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Problem describes CPUs that a container has but cannot keep. It is only a report: the returned
// state is valid.
type Problem struct {
	// Pod is the UID of the pod, and Container is the name of the container. Container is "" if
	// the problem concerns the whole pod. Both are "" if it concerns the shared pool.
	Pod, Container string
	CPUs           numa.CPUSet
	Err            error
}

// Error returns the problem in one line.
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

// Rebuild builds a state from the CPUs that pods already have. held has these CPUs by pod UID and
// container name: the cpusets of live cgroups, or stored CPUs ([PodCPUs.ByContainer]). The name
// "" has the pod's pool, or the empty set if it has none. Without that name, the pool is derived
// from the CPUs of its containers.
//
// Containers that are entitled to exclusive CPUs keep exactly those they have. Otherwise the
// problem is reported and the container shares: if CPUs are offline, reserved or taken, or if
// their number differs from the request. If two pods have the same CPU, the earlier one in pods
// keeps it, so put pods with a file before those with only a cpuset. The state is valid whatever
// the problems. pods must include terminating pods, since the CPUs of missing pods are free.
func Rebuild(p Policy, pods []numa.Pod, held map[string]map[string]numa.CPUSet) (State, []Problem) {
	s := p.Start()
	var problems []Problem
	known := map[string]bool{}
	for _, pod := range pods {
		// A pod that is listed twice counts once, at its first position.
		if known[pod.UID] {
			continue
		}
		known[pod.UID] = true
		if len(held[pod.UID]) == 0 {
			continue
		}
		var more []Problem
		s, more = p.Adopt(s, pod, held[pod.UID])
		problems = append(problems, more...)
	}
	// Sorted, so that the same input gives the same reports.
	for _, uid := range sorted(held) {
		if known[uid] {
			continue
		}
		for _, name := range sorted(held[uid]) {
			if cpus := held[uid][name]; !cpus.Empty() {
				problems = append(problems, Problem{uid, name, cpus, errors.New("pod is not on this node")})
			}
		}
	}
	return s, problems
}

// Adopt records the CPUs that a pod's containers already have. See [Policy] and [Rebuild].
//
// FullPCPUsOnly and the NUMA nodes of the CPUs are not checked: they matter for new allocations,
// but are no reason to take CPUs from a running container.
func (p *Static) Adopt(s State, pod numa.Pod, held map[string]numa.CPUSet) (State, []Problem) {
	if n := p.wantsWhole(pod); n > 0 {
		if next, problems, ok := p.adoptPool(s, pod, held, n); ok {
			return next, problems
		}
	}
	var problems []Problem
	if pool := held[""]; !pool.Empty() {
		problems = append(problems, Problem{pod.UID, "", pool, errors.New("the pod gets no exclusive CPUs")})
	}
	for _, c := range pod.Containers {
		cpus, ok := held[c.Name]
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

// adoptPool records the pool that a pod already has. It returns false if there is none;
// containers may have exclusive CPUs even so.
func (p *Static) adoptPool(s State, pod numa.Pod, held map[string]numa.CPUSet, n int) (State, []Problem, bool) {
	pool, named := held[""]
	// Cgroups do not show a pool. If the containers together have exactly as many CPUs as the pod
	// requests, these are the pool.
	if !named {
		for _, c := range pod.Containers {
			pool = pool.Union(held[c.Name])
		}
		named = pool.Len() == n
	}
	if !named || pool.Empty() {
		return s, nil, false
	}
	// A pool cannot be kept in parts, so the whole pod shares.
	if err := p.adoptable(s, pod.UID, numa.Regular, pool, n); err != nil {
		return s, []Problem{{pod.UID, "", pool, err}}, true
	}
	rec := PodCPUs{UID: pod.UID, Pool: pool}
	var problems []Problem
	var staying numa.CPUSet // exclusive CPUs of sidecars and regular containers
	for _, c := range pod.Containers {
		cpus, ok := held[c.Name]
		if !ok {
			continue
		}
		want := p.wants(pod, c)
		var err error
		switch {
		case want > 0 && cpus.Len() != want:
			err = fmt.Errorf("the record has %d CPUs; the container requests %d", cpus.Len(), want)
		case cpus.Empty() || !cpus.SubsetOf(pool):
			err = fmt.Errorf("the CPUs are not among the pod's CPUs %q", pool)
		case cpus.IntersectLen(staying) > 0:
			err = fmt.Errorf("CPUs %s are exclusive to another container", cpus.Intersect(staying))
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

// adoptable returns the reason why a container cannot keep CPUs, or nil. Reasons that do not
// depend on other pods are checked first.
func (p *Static) adoptable(s State, podUID string, kind numa.Kind, cpus numa.CPUSet, n int) error {
	if offline := cpus.Minus(p.l.all); !offline.Empty() {
		return fmt.Errorf("CPUs %s are offline", offline)
	}
	if cpus.Len() != n {
		return fmt.Errorf("they are %d CPUs; want %d", cpus.Len(), n)
	}
	if reserved := cpus.Intersect(p.reserved); !reserved.Empty() {
		return fmt.Errorf("CPUs %s are reserved", reserved)
	}
	free := p.free(s, podUID)
	if kind == numa.Init {
		// A sidecar that was resized may have some of them.
		free = free.Union(s.pods[podUID].held())
	}
	if taken := cpus.Minus(free); !taken.Empty() {
		return fmt.Errorf("CPUs %s are %s", taken, s.ownerOf(taken))
	}
	return nil
}

// ownerOf describes the first pod that has some of the CPUs.
func (s State) ownerOf(cpus numa.CPUSet) string {
	for _, uid := range s.Pods() {
		if s.pods[uid].held().IntersectLen(cpus) > 0 {
			return "those of pod " + uid
		}
	}
	return "not free"
}

// ByContainer returns the CPUs of a pod in the form that [Rebuild] takes.
func (p PodCPUs) ByContainer() map[string]numa.CPUSet {
	has := map[string]numa.CPUSet{"": p.Pool}
	for _, c := range p.Containers {
		has[c.Name] = c.CPUs
	}
	return has
}

// Validate returns the problems of a state that this policy may not have returned. It returns
// none if the state is valid, as every state from p is.
func (p *Static) Validate(s State) []Problem {
	var problems []Problem
	report := func(pod, container string, cpus numa.CPUSet, why string) {
		if !cpus.Empty() {
			problems = append(problems, Problem{pod, container, cpus, errors.New(why)})
		}
	}
	report("", "", s.shared.Minus(p.l.all), "the machine does not have them")
	if p.o.StrictReservation {
		report("", "", s.shared.Intersect(p.reserved), "they are reserved, and the option strict-cpu-reservation excludes them from the shared pool")
	} else {
		report("", "", p.reserved.Minus(s.shared), "they are reserved, and missing in the shared pool")
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
				problems = append(problems, Problem{uid, c.Name, c.CPUs, errors.New("no CPUs are assigned")})
			}
			if !pod.Pool.Empty() {
				report(uid, c.Name, c.CPUs.Minus(pod.Pool), "the pod does not have them")
			}
			if c.Kind != numa.Init && !c.Pooled {
				report(uid, c.Name, c.CPUs.Intersect(staying), "another container has them too")
				staying = staying.Union(c.CPUs)
			}
		}
	}
	// Unassigned CPUs outside of the shared pool would never be allocated again.
	report("", "", p.pool().Minus(s.shared).Minus(assigned), "assigned to no container and not shared")
	return problems
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
