package gc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodewright/nodewright/gc"
)

// A disk of 100 GiB is 92% full. One image is in use, one belongs to a pod
// that is stored and not started yet.
func ExampleImageCollector_Collect() {
	s := &fakeStore{capacity: 100 << 30, other: 80 << 30}
	s.add(4<<30, "web", "batch", "tools")
	s.use("web")
	m, err := gc.NewImageCollector(gc.ImageConfig{
		Store:   s,
		Policy:  &gc.ImagePolicy{High: 90, Low: 88},
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

// A policy of one's own: the newest image of each kind stays.
func ExampleImagePolicy() {
	policy := gc.ImagePolicy{High: 90, Low: 80}
	policy.Judge = func(images []gc.JudgedImage) {
		newest := map[string]*gc.JudgedImage{}
		for i := range images {
			kind, _, _ := strings.Cut(images[i].Image.Name(), "-") // app-1, app-2
			if n := newest[kind]; n == nil || images[i].Image.Name() > n.Image.Name() {
				newest[kind] = &images[i]
			}
		}
		for _, n := range newest {
			n.Verdict, n.Why = gc.ImageKept, "the newest of its kind"
		}
	}
	s := &fakeStore{capacity: 100 << 30, other: 80 << 30}
	s.add(4<<30, "app-1", "app-2", "tool-7")
	m, err := gc.NewImageCollector(gc.ImageConfig{Store: s, Policy: &policy})
	if err != nil {
		panic(err)
	}
	rep, err := m.Collect(context.Background())
	for _, o := range rep.Images {
		fmt.Println(o.Image.Name(), o.Removed, o.Verdict, o.Why != "")
	}
	fmt.Println("not enough:", errors.Is(err, gc.ErrNotEnough))
	// Output:
	// docker.io/library/app-1:latest true removable false
	// docker.io/library/app-2:latest false kept true
	// docker.io/library/tool-7:latest false kept true
	// not enough: true
}

// The decision alone: no runtime, no disk, no clock.
func ExampleDecideImages() {
	now := time.Now()
	for _, j := range gc.DecideImages(gc.DefaultImagePolicy(), []gc.ImageFact{
		{Image: gc.Image{ID: "used-yesterday"}, FirstSeen: now.Add(-72 * time.Hour), LastUsed: now.Add(-24 * time.Hour)},
		{Image: gc.Image{ID: "never-used"}, FirstSeen: now.Add(-time.Hour)},
		{Image: gc.Image{ID: "just-pulled"}, FirstSeen: now.Add(-time.Minute)},
	}, now) {
		fmt.Println(j.Image.ID, "is", j.Verdict)
	}
	// Output:
	// never-used is removable
	// used-yesterday is removable
	// just-pulled is young
}
