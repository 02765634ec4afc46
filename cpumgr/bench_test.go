package cpumgr

import (
	"fmt"
	"testing"

	"github.com/nodewright/nodewright/numa"
)

// Packed, all free: the kubelet takes 2.3 to 9.6 ms for it with 2 sockets of 64
// cores, and 14 to 66 ms with 2 of 128.
func BenchmarkTake(b *testing.B) {
	for _, cores := range []int{64, 128} {
		m := numa.Uniform(2, 1, cores, 2, 1<<30)
		free := m.AllCPUs()
		for _, n := range []int{1, 33, cores, 3*cores + 1} {
			b.Run(fmt.Sprintf("2x%d/n=%d", cores, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Take(m, free, n, Options{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The same without the preparation, as the static policy does it.
func BenchmarkTakePrepared(b *testing.B) {
	for _, cores := range []int{64, 128} {
		m := withCaches(numa.Uniform(2, 1, cores, 2, 1<<30), 8)
		l := newLayout(m)
		for _, o := range []Options{{}, {DistributeAcrossCores: true}, {PreferUncoreCache: true}, {DistributeAcrossNUMA: true}} {
			b.Run(fmt.Sprintf("2x%d/spread=%t,uncore=%t,numa=%t", cores, o.DistributeAcrossCores, o.PreferUncoreCache, o.DistributeAcrossNUMA), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.take(l.all, 3*cores+1, 0, o); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The search for an even way, with a remainder and nodes that all differ.
func BenchmarkDistribute(b *testing.B) {
	for _, nodes := range []int{8, 64} {
		m := numa.Uniform(8, nodes/8, 8, 2, 1<<30)
		l := newLayout(m)
		free := l.all
		for i, u := range l.nodes {
			free = free.Minus(numa.CPUs(u.cpus.IDs()[:i%8]...))
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.take(free, nodes*9+3, 0, Options{DistributeAcrossNUMA: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHints(b *testing.B) {
	for _, nodes := range []int{8, 64} {
		p := newStatic(b, numa.Uniform(8, nodes/8, 8, 2, 1<<30), "0", Options{})
		s, pod := p.Start(), guaranteed("a", 9)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Hints(s, pod, 0)
			}
		})
	}
}

// One admission and one release on a machine that has 100 pods.
func BenchmarkAllocate(b *testing.B) {
	p := newStatic(b, numa.Uniform(2, 1, 128, 2, 1<<30), "0", Options{})
	s := p.Start()
	for i := range 100 {
		var err error
		if s, err = p.Allocate(s, guaranteed(fmt.Sprint(i), 2), 0, numa.Hint{}); err != nil {
			b.Fatal(err)
		}
	}
	pod := guaranteed("new", 8)
	b.ReportAllocs()
	for b.Loop() {
		next, err := p.Allocate(s, pod, 0, numa.Hint{Nodes: numa.Nodes(1)})
		if err != nil {
			b.Fatal(err)
		}
		p.Release(next, "new", "")
	}
}
