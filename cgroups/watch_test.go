package cgroups_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

var memoryTrigger = cgroups.Trigger{Resource: "memory", Stall: 150 * time.Millisecond, Window: time.Second}

// A notification that the kernel grants after the call was given up is ended.
func TestLateNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
		release := tree.Hang("watch", cgroupstest.Mount+podB+"/memory.events")
		if _, err := m.Watch(t.Context(), "b-1"); !errors.Is(err, cgroups.ErrNoAnswer) {
			t.Errorf("Watch = %v, want no answer", err)
		}
		release()
		synctest.Wait()
		if got := tree.Watched(); len(got) > 0 {
			t.Errorf("still watched: %q", got)
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
		tree.Set(podB, "memory.events", "high 3\noom_kill 1\n") // before anybody watched
		events, err := m.Watch(t.Context(), "b-1", memoryTrigger)
		ok(t, err)
		dir := cgroupstest.Mount + podB
		if got, want := tree.Watched(), []string{dir + "/memory.events", dir + "/memory.pressure some 150000 1000000"}; !slices.Equal(got, want) {
			t.Errorf("the kernel is asked for %q, want %q", got, want)
		}
		tree.Change(podB, "memory.events", "high 5\noom 1\noom_kill 2\n")
		want := []cgroups.Event{
			{UID: "b-1", Type: cgroups.MemoryHigh, Count: 2}, {UID: "b-1", Type: cgroups.OOM, Count: 1}, {UID: "b-1", Type: cgroups.OOMKill, Count: 1},
		}
		for _, w := range want {
			if got := <-events; got != w {
				t.Errorf("told %+v, want %+v", got, w)
			}
		}
		tree.Change(podB, "memory.pressure", "some avg10=12.00 avg60=0.00 avg300=0.00 total=5\n")
		if got := <-events; got.Type != cgroups.Stalled || got.Trigger != memoryTrigger || got.Pressure.Some.Avg10 != 12 {
			t.Errorf("told %+v, want a stall of the trigger", got)
		}
		// What nobody takes is added up.
		for _, n := range []string{"3", "4", "9"} {
			synctest.Wait()
			tree.Change(podB, "memory.events", "oom_kill "+n+"\n")
		}
		if a, b := <-events, <-events; a.Type != cgroups.OOMKill || b.Type != cgroups.OOMKill || a.Count+b.Count != 7 {
			t.Errorf("told %+v and %+v, want 7 kills", a, b)
		}
		ok(t, m.Destroy(t.Context(), "b-1"))
		if got := <-events; got.Type != cgroups.Gone {
			t.Errorf("told %+v, want that it is gone", got)
		}
		if _, open := <-events; open {
			t.Error("there is more to tell")
		}
		if got := tree.Watched(); len(got) > 0 {
			t.Errorf("still watched: %q", got)
		}
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	versions(t, func(t *testing.T, _ cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
		ctx, cancel := context.WithCancel(t.Context())
		events, err := m.Watch(ctx, "b-1")
		ok(t, err)
		tree.Change(podB, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
		tree.Change(podB, "memory.events", "oom_kill 1\n")
		if got := <-events; got.Type != cgroups.OOMKill {
			t.Errorf("told %+v, want a kill", got)
		}
		cancel()
		if _, open := <-events; open || len(tree.Watched()) > 0 {
			t.Errorf("it goes on: %q", tree.Watched())
		}
	})
}

// On v1 the kernel reports first, and counts when it has killed.
func TestWatchWaitsForTheCountOnV1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V1)
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := m.Watch(ctx, "b-1")
		ok(t, err)
		tree.Change(podB, "memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 0\n")
		time.Sleep(time.Second)
		tree.Set(podB, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
		if got := <-events; got.Type != cgroups.OOMKill || got.Count != 1 {
			t.Errorf("told %+v, want a kill", got)
		}
		tree.Change(podB, "memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 1\n")
		time.Sleep(time.Minute) // nothing comes, and nobody goes on looking
	})
}

func TestWatchRefuses(t *testing.T) {
	tree := cgroupstest.NewTree(cgroups.V2)
	m := newManager(t, tree, cgroups.Config{})
	ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
	for name, tr := range map[string]cgroups.Trigger{
		"Trigger.Resource": {Resource: "disk", Stall: 1, Window: time.Second},
		"Trigger.Window":   {Resource: "io", Stall: time.Millisecond, Window: time.Minute},
		"Trigger.Stall":    {Resource: "io", Stall: 2 * time.Second, Window: time.Second},
	} {
		if _, err := m.Watch(t.Context(), "b-1", tr); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Watch = %v, want an error of %s", err, name)
		}
	}
	if _, err := m.Watch(t.Context(), "nobody"); !errors.Is(err, cgroups.ErrNotExist) {
		t.Errorf("of nobody: %v, want ErrNotExist", err)
	}
	tree.Set(podB, "memory.pressure", "") // a kernel without PSI
	if _, err := m.Watch(t.Context(), "b-1", memoryTrigger); !errors.Is(err, cgroups.ErrUnsupported) {
		t.Errorf("without PSI: %v, want ErrUnsupported", err)
	}
	if got := tree.Watched(); len(got) > 0 {
		t.Errorf("still watched: %q", got)
	}
	tree = cgroupstest.NewTree(cgroups.V1)
	m = newManager(t, tree, cgroups.Config{})
	ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
	if _, err := m.Watch(t.Context(), "b-1", memoryTrigger); !errors.Is(err, cgroups.ErrUnsupported) {
		t.Errorf("on v1: %v, want ErrUnsupported", err)
	}
}

func TestStats(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=500m memory=1Mi", "cpu=1 memory=2Mi")))
		used(tree, podB, "1000000")
		for file, value := range map[string]string{
			"cpu.stat":     "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 9\nnr_throttled 2\nthrottled_usec 7\nthrottled_time 7000\n",
			"cpuacct.stat": "user 1\nsystem 2\n", "cpuacct.usage": "5000000",
			"memory.stat":         "anon 600000\ninactive_file 100000\npgfault 8\npgmajfault 1\ntotal_rss 600000\ntotal_inactive_file 100000\ntotal_pgfault 8\ntotal_pgmajfault 1\n",
			"memory.events":       "low 0\nhigh 1\nmax 4\noom 1\noom_kill 2\n",
			"memory.oom_control":  "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"memory.failcnt":      "4",
			"memory.swap.current": "4096", "pids.current": "3",
			"hugetlb.2MB.current": "2097152", "hugetlb.2MB.usage_in_bytes": "2097152",
			"cpu.pressure": "some avg10=1.00 avg60=0.00 avg300=0.00 total=9\n",
		} {
			tree.Set(podB, file, value)
		}
		got, err := m.Stats(t.Context(), "b-1")
		ok(t, err)
		if got.CPU.Usage != 5*time.Millisecond || got.CPU.Throttled != 2 || got.CPU.ThrottledTime != 7*time.Microsecond || got.CPU.User == 0 {
			t.Errorf("cpu %+v", got.CPU)
		}
		mem := got.Memory
		if mem.Usage != 1000000 || mem.WorkingSet != 900000 || mem.RSS != 600000 || mem.Limit != 2<<20 || mem.PageFaults != 8 || mem.MajorPageFaults != 1 {
			t.Errorf("memory %+v", mem)
		}
		if mem.Events.Max != 4 || mem.Events.OOMKill != 2 || got.Pids != 3 || got.Hugepages[2<<20] != 2<<20 {
			t.Errorf("events %+v, pids %d, huge pages %v", mem.Events, got.Pids, got.Hugepages)
		}
		if v == cgroups.V2 && (got.Pressure == nil || got.Pressure.CPU.Some.Avg10 != 1) || v == cgroups.V1 && got.Pressure != nil {
			t.Errorf("pressure %+v", got.Pressure)
		}
		if _, err := m.Stats(t.Context(), "nobody"); !errors.Is(err, cgroups.ErrNotExist) {
			t.Errorf("of nobody: %v, want ErrNotExist", err)
		}
	})
}
