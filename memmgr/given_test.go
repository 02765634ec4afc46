package memmgr_test

import (
	"slices"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

const (
	gi     = uint64(1 << 30)
	huge2M = uint64(2 << 20)
	huge1G = uint64(1 << 30)
)

// nodes are IDs as a set.
var nodes = numa.Nodes

// machine has a node with each of some GiB to give, and 1 GiB reserved on top.
func machine(give ...uint64) (numa.Machine, memmgr.Reserved) {
	m, r := numa.Machine{}, memmgr.Reserved{}
	for id, n := range give {
		m.CPUs = append(m.CPUs, numa.CPU{ID: id, Core: id, Node: id})
		m.Nodes = append(m.Nodes, numa.Node{ID: id, Memory: (n + 1) * gi})
		r[id] = map[memmgr.Resource]uint64{memmgr.Memory: gi}
	}
	return m, r
}

// static is the policy on such a machine.
func static(t testing.TB, give ...uint64) *memmgr.Static {
	t.Helper()
	m, r := machine(give...)
	return policy(t, memmgr.Config{Machine: m, Reserved: r, PodLevel: true})
}

func policy(t testing.TB, cfg memmgr.Config) *memmgr.Static {
	t.Helper()
	p, err := memmgr.NewStatic(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// guaranteed is a pod whose containers' requests are limits too.
func guaranteed(uid string, containers ...numa.Container) numa.Pod {
	return numa.Pod{UID: uid, Guaranteed: true, Containers: containers}
}

func container(kind numa.Kind, name string, memory uint64) numa.Container {
	return numa.Container{Name: name, Kind: kind, Resources: numa.Resources{MilliCPU: 1000, Memory: memory * gi, Bound: true}}
}

func app(name string, memory uint64) numa.Container   { return container(numa.Regular, name, memory) }
func initc(name string, memory uint64) numa.Container { return container(numa.Init, name, memory) }
func sidecar(name string, memory uint64) numa.Container {
	return container(numa.Sidecar, name, memory)
}

// sharing is a container that has no request of its own.
func sharing(kind numa.Kind, name string) numa.Container {
	return numa.Container{Name: name, Kind: kind}
}

// on is a hint that is not preferred.
func on(ids ...int) numa.Hint { return numa.Hint{Nodes: nodes(ids...)} }

// must allocates all containers of a pod, by the same hint.
func must(t testing.TB, p memmgr.Policy, s memmgr.State, pod numa.Pod, hint numa.Hint) memmgr.State {
	t.Helper()
	next, err := p.Allocate(s, pod, -1, hint)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// used returns the allocated amount of a resource on all nodes.
func used(p *memmgr.Static, s memmgr.State, r memmgr.Resource) uint64 {
	var sum uint64
	for _, n := range p.Stats(s) {
		for _, f := range n.Resources {
			if f.Resource == r {
				sum += f.Used
			}
		}
	}
	return sum
}

func wantHints(t *testing.T, got numa.Hints, want ...numa.Hint) {
	t.Helper()
	if got.Any || !slices.Equal(got.List, want) {
		t.Errorf("hints %v (any: %t), want %v", got.List, got.Any, want)
	}
}
