package cpumgr

import (
	"math/rand/v2"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// The machines of the tables. S is a socket of 8 CPUs, {0,4} {1,5} {2,6} {3,7}
// being cores. D has two sockets of 6 CPUs, even numbers on the first, i and i+6
// being a core. M has 2 sockets of 2 nodes; node n has 10n to 10n+9, and their
// siblings 40 higher.
func machineS() numa.Machine { return numa.Uniform(1, 1, 4, 2, 1<<30) }
func machineM() numa.Machine { return numa.Uniform(2, 2, 10, 2, 1<<30) }

func machineD() numa.Machine {
	m := numa.Uniform(2, 1, 3, 2, 1<<30)
	for i := range m.CPUs {
		side := i % 2
		m.CPUs[i] = numa.CPU{ID: i, Core: i % 6, Cache: side, Socket: side, Node: side}
	}
	return m
}

// withCaches is a uniform machine with caches that so many cores share each.
func withCaches(m numa.Machine, cores int) numa.Machine {
	for i := range m.CPUs {
		m.CPUs[i].Cache = m.CPUs[i].Core / cores * cores
	}
	return m
}

// hybrid has 4 cores of two threads (0-7, neighbours being siblings) and 4 of one.
func hybrid() numa.Machine {
	m := numa.Machine{Nodes: []numa.Node{{ID: 0}}}
	for id := range 12 {
		core := id
		if id < 8 {
			core = id / 2 * 2
		}
		m.CPUs = append(m.CPUs, numa.CPU{ID: id, Core: core})
	}
	return m
}

func list(s string) numa.CPUSet {
	set, err := numa.ParseCPUs(s)
	if err != nil {
		panic(err)
	}
	return set
}

// some is a random part of a set.
func some(r *rand.Rand, of numa.CPUSet, percent int) numa.CPUSet {
	var ids []int
	for id := range of.All() {
		if r.IntN(100) < percent {
			ids = append(ids, id)
		}
	}
	return numa.CPUs(ids...)
}

func newStatic(t testing.TB, m numa.Machine, reserved string, o Options) *Static {
	t.Helper()
	p, err := NewStatic(m, Reservation{CPUs: list(reserved)}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// guaranteed is a pod of regular containers "0", "1" and so on.
func guaranteed(uid string, cpus ...int64) numa.Pod {
	pod := numa.Pod{UID: uid, Guaranteed: true}
	for i, n := range cpus {
		pod.Containers = append(pod.Containers, container(string(rune('0'+i)), numa.Regular, n*1000))
	}
	return pod
}

func container(name string, kind numa.Kind, milli int64) numa.Container {
	return numa.Container{Name: name, Kind: kind, Resources: numa.Resources{MilliCPU: milli, Bound: true}}
}

// holding is a state in which another pod has all CPUs but some.
func holding(p *Static, free string) State {
	taken := p.Allocatable().Minus(list(free))
	if taken.Empty() {
		return p.Start()
	}
	return p.Start().WithPod(PodCPUs{UID: "other", Containers: []ContainerCPUs{{Name: "c", CPUs: taken}}})
}
