package devicemgr

import (
	"fmt"
	"testing"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/numa"
)

func manyDevices(n, nodes int) []Device {
	list := make([]Device, n)
	for i := range list {
		list[i] = Device{ID: fmt.Sprintf("device-%05d", i), Healthy: true, Nodes: numa.Nodes(i % nodes)}
	}
	return list
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{8, 10000} {
		b.Run(fmt.Sprint("devices=", n), func(b *testing.B) {
			w := want{resource: "example.com/gpu", count: 4, devices: manyDevices(n, 2), hint: numa.Nodes(1), taken: func(string) bool { return false }}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pick(w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// 8 NUMA nodes, 255 sets of them.
func BenchmarkHints(b *testing.B) {
	m := numa.Machine{}
	for i := range 8 {
		m.Nodes = append(m.Nodes, numa.Node{ID: i})
		m.CPUs = append(m.CPUs, numa.CPU{ID: i, Core: i, Node: i})
	}
	for _, n := range []int{8, 10000} {
		b.Run(fmt.Sprint("devices=", n), func(b *testing.B) {
			q := question{resource: "example.com/gpu", devices: manyDevices(n, 8), n: 2, free: func(string) bool { return true }}
			b.ReportAllocs()
			for b.Loop() {
				if h := q.hints(m); len(h.List) == 0 {
					b.Fatal("no hints")
				}
			}
		})
	}
}

// The cost of a list of 10,000 devices, unchanged or changed.
func BenchmarkList(b *testing.B) {
	for _, news := range []bool{false, true} {
		b.Run(fmt.Sprint("news=", news), func(b *testing.B) {
			m, err := New(Config{Store: onlyWrite{}, Log: zap.NewNop()})
			if err != nil {
				b.Fatal(err)
			}
			s := &session{resource: "example.com/gpu", ctx: b.Context()}
			r := &resource{name: s.resource, session: s, taken: map[string]types.UID{}}
			m.resources[s.resource] = r
			lists := [2][]Device{manyDevices(10000, 2), manyDevices(10000, 2)}
			lists[1][5000].Healthy = !news
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				m.list(s, lists[i%2])
				i++
			}
		})
	}
}
