package memmgr_test

import (
	"fmt"
	"testing"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// busy is a machine of n nodes with 200 pods on it, each on one node.
func busy(b *testing.B, n int) (*memmgr.Static, memmgr.State) {
	m := numa.Uniform(max(1, n/8), min(n, 8), 4, 2, 256*gi)
	r, err := memmgr.Spread(m, totals{memmgr.Memory: gi})
	if err != nil {
		b.Fatal(err)
	}
	p := policy(b, memmgr.Config{Machine: m, Reserved: r})
	var s memmgr.State
	for i := range 200 {
		s = must(b, p, s, guaranteed(fmt.Sprint("pod", i), initc("i", 1), app("a", 1), app("b", 1)), on(i%n))
	}
	return p, s
}

func BenchmarkHints(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(n, " nodes"), func(b *testing.B) {
			p, s := busy(b, n)
			pod := guaranteed("new", app("a", 4))
			b.ReportAllocs()
			for b.Loop() {
				if len(p.Hints(s, pod, 0).List) == 0 {
					b.Fatal("no hints")
				}
			}
		})
	}
}

func BenchmarkAllocate(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(n, " nodes"), func(b *testing.B) {
			p, s := busy(b, n)
			pod := guaranteed("new", app("a", 4))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Allocate(s, pod, 0, on(0)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewStatic(b *testing.B) {
	m := numa.Uniform(8, 8, 4, 2, 256*gi)
	r, _ := memmgr.Spread(m, totals{memmgr.Memory: gi})
	for b.Loop() {
		if _, err := memmgr.NewStatic(memmgr.Config{Machine: m, Reserved: r}); err != nil {
			b.Fatal(err)
		}
	}
}
