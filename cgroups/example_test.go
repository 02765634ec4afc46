package cgroups_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

// A pod is made, and its cgroup removed with whatever is left in it.
func ExampleManager_Ensure() {
	tree := cgroupstest.NewTree(cgroups.V2) // leave FS, Notifier and Kill out for this machine's own
	m, err := cgroups.New(cgroups.Config{FS: tree, Notifier: tree, Kill: tree.Kill})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	web := pod("1f6c", "cpu=500m memory=64Mi", "cpu=1 memory=128Mi")
	fmt.Println(m.CgroupParent(web), m.Ensure(ctx, web))
	fmt.Println(tree.Value(m.CgroupParent(web), "cpu.max"), tree.Value(m.CgroupParent(web), "memory.max"))
	tree.Put(m.CgroupParent(web), 4711, false)
	fmt.Println(m.Destroy(ctx, web.UID), m.Exists(ctx, web.UID))
	// Output:
	// /kubepods/burstable/pod1f6c <nil>
	// 100000 100000 134217728
	// <nil> cgroup of pod 1f6c: cgroup does not exist
}

// A pod is kept under control of its pressure: when all its tasks wait for
// memory for a tenth of a second, it gets room.
func ExampleManager_Watch() {
	tree := cgroupstest.NewTree(cgroups.V2)
	m, err := cgroups.New(cgroups.Config{FS: tree, Notifier: tree, Kill: tree.Kill})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batch := pod("77aa", "cpu=1 memory=64Mi", "cpu=1 memory=128Mi")
	if err := m.Ensure(ctx, batch); err != nil {
		panic(err)
	}
	events, err := m.Watch(ctx, batch.UID, cgroups.Trigger{
		Resource: "memory", Full: true, Stall: 100 * time.Millisecond, Window: time.Second,
	})
	if err != nil {
		panic(err) // cgroups.ErrUnsupported on v1 and without PSI
	}
	at := m.CgroupParent(batch)
	tree.Change(at, "memory.pressure", "some avg10=31.00 avg60=9.00 avg300=2.00 total=900000\nfull avg10=25.00 avg60=7.00 avg300=1.00 total=700000\n")
	ev := <-events
	fmt.Printf("%s: %s for %v%% of 10s\n", ev.Type, ev.Trigger, ev.Pressure.Full.Avg10)
	fmt.Println(m.Update(ctx, pod("77aa", "cpu=1 memory=64Mi", "cpu=1 memory=256Mi")), tree.Value(at, "memory.max"))
	// Output:
	// Stalled: full 100000 1000000 for 25% of 10s
	// <nil> 268435456
}
