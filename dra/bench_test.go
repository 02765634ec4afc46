package dra_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/dra"
)

// many makes pods with five claims each.
func many(b *testing.B, c *claims, n int) []*v1.Pod {
	b.Helper()
	var pods []*v1.Pod
	for i := range n {
		var names []string
		uid := fmt.Sprint("pod", i)
		for j := range 5 {
			name := fmt.Sprintf("c%d-%d", i, j)
			names = append(names, name)
			c.put(claim(name, uid))
		}
		pods = append(pods, pod(uid, names...))
	}
	return pods
}

// quiet is a driver that notes nothing.
type quiet struct{ *driver }

func (q quiet) Prepare(_ context.Context, list []dra.ClaimRef) (map[types.UID]dra.Prepared, error) {
	out := make(map[types.UID]dra.Prepared, len(list))
	for _, c := range list {
		out[c.UID] = dra.Prepared{Devices: q.devices(c)}
	}
	return out, nil
}

func running(b *testing.B, store dra.Store, c *claims) (m *dra.Manager, stop func()) {
	b.Helper()
	m, err := dra.New(dra.Config{Store: store, Claims: c, Boot: "1"})
	if err != nil {
		b.Fatal(err)
	}
	if err := m.Restore(nil); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	d := newDriver(nil, gpu)
	d.noHealth = true
	<-m.Ready()
	if err := m.Offer(gpu, "1", quiet{d}); err != nil {
		b.Fatal(err)
	}
	return m, func() { cancel(); <-ended }
}

// Prepare of 100 pods with 5 claims, in memory, and onto a disk without syncs.
func BenchmarkPrepare(b *testing.B) {
	for name, open := range map[string]func() dra.Store{
		"memory": func() dra.Store { return newMemory() },
		"disk": func() dra.Store {
			s, err := checkpoint.Open(checkpoint.Config{Dir: b.TempDir(), NoSync: true})
			if err != nil {
				b.Fatal(err)
			}
			return s
		},
	} {
		b.Run(name, func(b *testing.B) {
			c := &claims{}
			pods := many(b, c, 100)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				c.asked = nil
				m, stop := running(b, open(), c)
				b.StartTimer()
				for _, p := range pods {
					if err := m.Prepare(context.Background(), p); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				stop()
				b.StartTimer()
			}
		})
	}
}

// Prepare of 100 pods that have everything: what each sync costs.
func BenchmarkPrepared(b *testing.B) {
	c := &claims{}
	pods := many(b, c, 100)
	m, stop := running(b, newMemory(), c)
	defer stop()
	for _, p := range pods {
		if err := m.Prepare(context.Background(), p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pods {
			if err := m.Prepare(context.Background(), p); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// Restore of 500 claims.
func BenchmarkRestore(b *testing.B) {
	c, store := &claims{}, newMemory()
	pods := many(b, c, 100)
	m, stop := running(b, store, c)
	for _, p := range pods {
		if err := m.Prepare(context.Background(), p); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	b.ReportAllocs()
	for b.Loop() {
		m, err := dra.New(dra.Config{Store: store, Claims: c, Boot: "1"})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Restore(nil); err != nil {
			b.Fatal(err)
		}
	}
}
