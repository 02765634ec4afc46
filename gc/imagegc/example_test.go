package imagegc_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nodewright/nodewright/gc/imagegc"
)

// A disk of 100 GiB is 92% full. One image is in use, one belongs to a pod
// that is stored and not started yet.
func ExampleManager_Collect() {
	s := &fakeStore{capacity: 100 << 30, other: 80 << 30}
	s.add(4<<30, "web", "batch", "tools")
	s.use("web")
	m, err := imagegc.New(imagegc.Config{
		Store:   s,
		Policy:  &imagegc.Policy{High: 90, Low: 88},
		Desired: func() []string { return []string{"batch"} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rep, err := m.Collect(context.Background())
	fmt.Println(rep.Summary(), err)
	for _, o := range rep.Images {
		fmt.Println(o.Image.Tags[0], o.Verdict, o.Why, o.Removed)
	}
	// Output:
	// 8.0 GiB of 100.0 GiB were available, images took 12.0 GiB; 3 images, 1 removed, 1 in use (4.0 GiB), 1 desired (4.0 GiB) <nil>
	// docker.io/library/tools:latest removable  true
	// docker.io/library/batch:latest desired batch false
	// docker.io/library/web:latest in use default/pod/c false
}

// The decision alone: no runtime, no disk, no clock.
func ExampleDecide() {
	now := time.Now()
	for _, j := range imagegc.Decide(imagegc.DefaultPolicy(), []imagegc.Fact{
		{Image: imagegc.Image{ID: "used-yesterday"}, FirstSeen: now.Add(-72 * time.Hour), LastUsed: now.Add(-24 * time.Hour)},
		{Image: imagegc.Image{ID: "never-used"}, FirstSeen: now.Add(-time.Hour)},
		{Image: imagegc.Image{ID: "just-pulled"}, FirstSeen: now.Add(-time.Minute)},
	}, now) {
		fmt.Println(j.Image.ID, "is", j.Verdict)
	}
	// Output:
	// never-used is removable
	// used-yesterday is removable
	// just-pulled is young
}
