package cgroups_test

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
	"github.com/nodewright/nodewright/internal/testrun"
)

func TestDestroy(t *testing.T) {
	versions(t, func(t *testing.T, _ cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		p := pod("b-1", "cpu=1", "")
		ok(t, m.Destroy(t.Context(), p.UID)) // it was never there
		ok(t, m.Ensure(t.Context(), p))
		tree.Make(podB + "/ctr")
		tree.Make(podB + "/ctr/inner")
		tree.Put(podB+"/ctr/inner", 77, false)
		tree.Put(podB, 5, false)
		ok(t, m.Destroy(t.Context(), p.UID))
		if tree.Exists(podB) || !tree.Exists(burstable) {
			t.Error("the pod's cgroup is there, or its tier is not")
		}
		if err := m.Exists(t.Context(), p.UID); !errors.Is(err, cgroups.ErrNotExist) {
			t.Errorf("Exists = %v, want ErrNotExist", err)
		}
		ok(t, m.Ensure(t.Context(), p)) // and again
	})
}

func TestDestroyGivesUpOnStragglers(t *testing.T) {
	versions(t, func(t *testing.T, _ cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		p := pod("b-1", "cpu=1", "")
		ok(t, m.Ensure(t.Context(), p))
		tree.Make(podB + "/ctr")
		tree.Put(podB+"/ctr", 77, true)
		tree.Put(podB+"/ctr", 78, false)
		start := time.Now()
		err := m.Destroy(t.Context(), p.UID)
		var left *cgroups.StragglersError
		if !errors.As(err, &left) || !slices.Equal(left.Pids, []int{77}) || left.Path != podB {
			t.Errorf("Destroy = %v, want that 77 remains in %s", err, podB)
		}
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("tried for %v, want one to two seconds", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := m.Destroy(ctx, p.UID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Destroy with little time = %v", err)
		}
		tree.Put("/", 77, true) // it ended up elsewhere
		ok(t, m.Destroy(t.Context(), p.UID))
	})
}

// A kernel before 5.14 has no cgroup.kill.
func TestDestroyWithoutCgroupKill(t *testing.T) {
	tree := cgroupstest.NewTree(cgroups.V2)
	m := newManager(t, tree, cgroups.Config{})
	p := pod("b-1", "cpu=1", "")
	ok(t, m.Ensure(t.Context(), p))
	tree.Fail("write", cgroupstest.Mount+podB+"/cgroup.kill", syscall.ENOENT)
	tree.Put(podB, 77, false)
	ok(t, m.Destroy(t.Context(), p.UID))
	if tree.Exists(podB) {
		t.Error("it is still there")
	}
}

func TestDestroyWaitsForTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		m := newManager(t, tree, cgroups.Config{})
		p := pod("b-1", "cpu=1", "")
		ok(t, m.Ensure(t.Context(), p))
		tree.Fail("rmdir", cgroupstest.Mount+podB, syscall.EBUSY) // its processes are not reaped yet
		time.AfterFunc(100*time.Millisecond, func() { tree.Fail("rmdir", cgroupstest.Mount+podB, nil) })
		start := time.Now()
		ok(t, m.Destroy(t.Context(), p.UID))
		if d := time.Since(start); d > 200*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

func TestSweepTouchesOnlyWhatIsOurs(t *testing.T) {
	versions(t, func(t *testing.T, _ cgroups.Version, tree *cgroupstest.Tree) {
		tree.Make("/mine")
		if tree.Value("/mine", "cgroup.controllers") == "" {
			_ = tree.Write(cgroupstest.Mount+"/cgroup.subtree_control", "+cpu +cpuset +memory +pids +hugetlb +io")
		}
		m := newManager(t, tree, cgroups.Config{Root: "/mine"})
		for _, p := range []*v1.Pod{pod("keep", "cpu=1", ""), pod("old", "cpu=1", ""), pod("gone", "", ""), pod("g", "", "cpu=1 memory=1Mi")} {
			ok(t, m.Ensure(t.Context(), p))
		}
		foreign := []string{
			"/kubepods", "/kubepods/podx", "/mine/podx", "/mine/kubepods/other", "/mine/kubepods/mypodx",
			"/mine/kubepods/burstable/podkeep/podx", "/mine/kubepods/burstable/crio-podx",
		}
		for _, c := range foreign {
			tree.Make(c)
		}
		found, err := m.Pods(t.Context())
		ok(t, err)
		if len(found) != 4 || found["gone"] != (cgroups.Pod{UID: "gone", Class: v1.PodQOSBestEffort, Path: "/mine/kubepods/besteffort/podgone"}) {
			t.Errorf("Pods = %v", found)
		}
		removed, err := m.Sweep(t.Context(), func(uid types.UID) bool { return uid == "keep" })
		if want := []types.UID{"g", "gone", "old"}; !slices.Equal(removed, want) || err != nil {
			t.Errorf("Sweep removed %v, %v, want %v", removed, err, want)
		}
		for _, c := range append(foreign, "/mine/kubepods/burstable/podkeep") {
			if !tree.Exists(c) {
				t.Errorf("%s is gone", c)
			}
		}
	})
}

func run(t *testing.T, m *cgroups.Manager) {
	t.Helper()
	testrun.Start(t, m.Run)
	synctest.Wait()
}

func settle() {
	time.Sleep(200 * time.Millisecond)
	synctest.Wait()
}

func TestTiersFollowThePods(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{PodOptions: cgroups.PodOptions{ReserveMemory: true}})
		run(t, m)
		has(t, v, tree, burstable, []string{"cpu.shares 2"}, []string{"cpu.weight 1", "memory.low 0"})
		has(t, v, tree, "/kubepods/besteffort", []string{"cpu.shares 2", "hugetlb.2MB.limit_in_bytes 4611686018427387904"},
			[]string{"cpu.weight 1", "hugetlb.2MB.max 4611686018427387904"})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1 memory=2Mi", "")))
		ok(t, m.Ensure(t.Context(), pod("b-2", "cpu=1 memory=2Mi", "")))
		ok(t, m.Ensure(t.Context(), pod("g", "cpu=8 memory=8Mi", "cpu=8 memory=8Mi")))
		settle()
		has(t, v, tree, burstable, []string{"cpu.shares 2048"}, []string{"cpu.weight 79", "memory.low 4194304"})
		has(t, v, tree, "/kubepods", []string{"cpu.shares 1024"}, []string{"cpu.weight 100", "memory.min 12582912"})
		tree.Writes()
		time.Sleep(10 * time.Minute)
		if w := tree.Writes(); len(w) > 0 {
			t.Errorf("with nothing to do, it wrote %q", w)
		}
		ok(t, m.Raise(t.Context(), pod("b-1", "cpu=2 memory=2Mi", ""), v1.ResourceCPU))
		settle()
		has(t, v, tree, burstable, []string{"cpu.shares 3072"}, []string{"cpu.weight 118"})
		ok(t, m.Destroy(t.Context(), "b-1"))
		ok(t, m.Destroy(t.Context(), "b-2"))
		settle()
		has(t, v, tree, burstable, []string{"cpu.shares 2"}, []string{"cpu.weight 1", "memory.low 0"})
	})
}

// After a restart, no tier sinks below what its pods have while they become
// known one by one.
func TestTiersAfterRestart(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		before := newManager(t, tree, cgroups.Config{})
		for _, uid := range []string{"b-1", "b-2"} {
			ok(t, before.Ensure(t.Context(), pod(uid, "cpu=4", "")))
		}
		m := newManager(t, tree, cgroups.Config{})
		run(t, m)
		lowest := tree.Value(burstable, "cpu.shares") + tree.Value(burstable, "cpu.weight")
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=4", "")))
		settle()
		has(t, v, tree, burstable, []string{"cpu.shares 8192"}, []string{"cpu.weight 313"}) // weights are coarser than shares
		if v == cgroups.V1 && lowest != "8192" {
			t.Errorf("right after the restart the tier has %s", lowest)
		}
		ok(t, m.Destroy(t.Context(), "b-2")) // nobody wanted it
		settle()
		has(t, v, tree, burstable, []string{"cpu.shares 4096"}, []string{"cpu.weight 157"})
	})
}

// A hundred pods at once are a few updates of the tiers.
func TestTierUpdatesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		m := newManager(t, tree, cgroups.Config{})
		run(t, m)
		tree.Writes()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { _ = m.Ensure(t.Context(), pod(strings.Repeat("x", i+1), "cpu=1", "")) })
		}
		wg.Wait()
		settle()
		n := 0
		for _, w := range tree.Writes() {
			if strings.HasPrefix(w, cgroupstest.Mount+burstable+"/cpu.weight") {
				n++
			}
		}
		if n < 1 || n > 3 {
			t.Errorf("%d updates of the tier, want 1 to 3", n)
		}
	})
}

func TestNodeIsEnforced(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		var told []string
		tree.Make("/system")
		_ = tree.Write(cgroupstest.Mount+"/cgroup.subtree_control", "+cpu +cpuset +memory +pids +hugetlb +io")
		m := newManager(t, tree, cgroups.Config{
			Node: cgroups.Node{
				Capacity:       list("cpu=4 memory=8Mi pid=1000 hugepages-2Mi=4Mi ephemeral-storage=1Gi"),
				SystemReserved: list("cpu=1 memory=1Mi pid=100"), KubeReserved: list("cpu=500m"),
				HardEviction: map[string]string{"memory.available": "1Mi"},
			},
			CPUs:                 "0-1",
			Enforce:              []cgroups.Enforcement{cgroups.EnforcePods, cgroups.EnforceSystem, cgroups.EnforceKubeCompressible},
			SystemReservedCgroup: "/system", KubeReservedCgroup: "/kube",
			Event: func(_, reason, message string) { told = append(told, reason+": "+message) },
		})
		run(t, m)
		has(t, v, tree, "/kubepods",
			[]string{"cpu.shares 2560", "cpu.cfs_quota_us -1", "memory.limit_in_bytes 7340032", "pids.max 900", "hugetlb.2MB.limit_in_bytes 4194304", "hugetlb.1GB.limit_in_bytes 0", "cpuset.cpus 0-1"},
			[]string{"cpu.weight 98", "cpu.max max 100000", "memory.max 7340032", "pids.max 900", "hugetlb.2MB.max 4194304", "hugetlb.1GB.max 0", "cpuset.cpus 0-1"})
		has(t, v, tree, "/system", []string{"cpu.shares 1024", "memory.limit_in_bytes 1048576", "pids.max 100"},
			[]string{"cpu.weight 39", "memory.max 1048576", "pids.max 100"})
		// The missing cgroup is told of, and keeps nobody from running pods.
		err := m.Healthy()
		if !errors.Is(err, cgroups.ErrNotExist) || !strings.Contains(err.Error(), "kube-reserved-compressible: /kube") {
			t.Errorf("Healthy = %v, want that /kube does not exist", err)
		}
		if last := told[len(told)-1]; !strings.HasPrefix(last, "FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits /kubepods: ") {
			t.Errorf("told last: %s", last)
		}
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
		tree.Make("/kube")
		time.Sleep(2 * time.Second)
		ok(t, m.Healthy())
		has(t, v, tree, "/kube", []string{"cpu.shares 512", "memory.limit_in_bytes 9223372036854771712"}, []string{"cpu.weight 20", "memory.max max"})
		if last := told[len(told)-1]; last != "NodeAllocatableEnforced: Updated limits on /kubepods" {
			t.Errorf("told last: %s", last)
		}
		n := len(told)
		time.Sleep(time.Hour)
		if len(told) != n {
			t.Errorf("told again: %q", told[n:])
		}
	})
}

// Limits that somebody changes, or removes with the cgroup, come back with the
// next change of a pod.
func TestNodeIsMended(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{Node: cgroups.Node{Capacity: list("memory=8Mi pid=50")}})
		run(t, m)
		for _, c := range []string{"/kubepods/besteffort", burstable, "/kubepods"} {
			for _, h := range []string{"", "/cpu", "/cpuacct", "/cpuset", "/memory", "/pids", "/hugetlb"} {
				_ = tree.Rmdir(cgroupstest.Mount + h + c)
			}
		}
		if tree.Exists("/kubepods") {
			t.Fatal("it is still there")
		}
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
		settle()
		has(t, v, tree, "/kubepods", []string{"memory.limit_in_bytes 8388608", "pids.max 50"}, []string{"memory.max 8388608", "pids.max 50"})
		has(t, v, tree, burstable, []string{"cpu.shares 1024"}, []string{"cpu.weight 39"})
		if !tree.Exists("/kubepods/besteffort") {
			t.Error("the other tier is not there")
		}
		ok(t, m.Healthy())
	})
}

// On v1 a limit below what is in use is refused; it comes when there is less.
func TestNodeLimitWaitsForEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V1)
		tree.Make("/kubepods")
		used(tree, "/kubepods", "9000000")
		m := newManager(t, tree, cgroups.Config{Node: cgroups.Node{Capacity: list("memory=8Mi")}})
		run(t, m)
		if err := m.Healthy(); !errors.Is(err, cgroups.ErrInUse) {
			t.Errorf("Healthy = %v, want ErrInUse", err)
		}
		time.Sleep(time.Hour)
		used(tree, "/kubepods", "4096")
		time.Sleep(time.Minute)
		ok(t, m.Healthy())
		has(t, cgroups.V1, tree, "/kubepods", []string{"memory.limit_in_bytes 8388608"}, nil)
	})
}

// What lesser classes may use shrinks no further than what they use.
func TestQOSReserved(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{
			Node:        cgroups.Node{Capacity: list("memory=8Mi")},
			QOSReserved: map[v1.ResourceName]string{v1.ResourceMemory: "100%"},
		})
		run(t, m)
		used(tree, burstable, "6291456")
		ok(t, m.Ensure(t.Context(), pod("g", "cpu=1 memory=4Mi", "cpu=1 memory=4Mi")))
		settle()
		above := strconv.Itoa(6291456 + os.Getpagesize())
		has(t, v, tree, burstable, []string{"memory.limit_in_bytes " + above}, []string{"memory.max " + above})
		if err := m.Healthy(); !errors.Is(err, cgroups.ErrInUse) {
			t.Errorf("Healthy = %v, want ErrInUse", err)
		}
		used(tree, burstable, "4096")
		time.Sleep(time.Minute)
		has(t, v, tree, burstable, []string{"memory.limit_in_bytes 4194304"}, []string{"memory.max 4194304"})
		has(t, v, tree, "/kubepods/besteffort", []string{"memory.limit_in_bytes 4194304"}, []string{"memory.max 4194304"})
		ok(t, m.Healthy())
	})
}

// A tier with a limit that somebody removed is made again.
func TestQOSReservedTierRemoved(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{
			Node:        cgroups.Node{Capacity: list("memory=8Mi")},
			QOSReserved: map[v1.ResourceName]string{v1.ResourceMemory: "100%"},
		})
		run(t, m)
		settle()
		const besteffort = "/kubepods/besteffort"
		tree.Remove(besteffort)
		ok(t, m.Ensure(t.Context(), pod("g", "cpu=1 memory=4Mi", "cpu=1 memory=4Mi")))
		settle()
		ok(t, m.Healthy())
		has(t, v, tree, besteffort, []string{"memory.limit_in_bytes 4194304"}, []string{"memory.max 4194304"})
	})
}

// A start that fails is tried again, by Run and by whoever needs it.
func TestStartIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		tree.Fail("mkdir", cgroupstest.Mount+"/kubepods", syscall.EROFS)
		m := newManager(t, tree, cgroups.Config{})
		run(t, m)
		if err := m.Ensure(t.Context(), pod("b-1", "cpu=1", "")); !errors.Is(err, syscall.EROFS) {
			t.Errorf("Ensure = %v, want EROFS", err)
		}
		time.Sleep(time.Hour)
		if err := m.Healthy(); !errors.Is(err, syscall.EROFS) {
			t.Errorf("Healthy = %v, want EROFS", err)
		}
		tree.Fail("mkdir", cgroupstest.Mount+"/kubepods", nil)
		time.Sleep(time.Minute)
		ok(t, m.Healthy())
		if !tree.Exists(burstable) {
			t.Error("the tiers are not there")
		}
	})
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	tree := cgroupstest.NewTree(cgroups.V2)
	m := newManager(t, tree, cgroups.Config{Metrics: reg})
	ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=1", "")))
	ok(t, m.Update(t.Context(), pod("b-1", "cpu=2", "")))
	ok(t, m.Destroy(t.Context(), "b-1"))
	families, err := reg.Gather()
	ok(t, err)
	got := map[string]int{}
	for _, f := range families {
		got[f.GetName()] = len(f.GetMetric())
	}
	for name, n := range map[string]int{
		"kubelet_cgroup_manager_duration_seconds": 3, "kubelet_cgroup_version": 1, "nodewright_cgroups_stuck_calls": 1,
	} {
		if got[name] != n {
			t.Errorf("%s has %d series, want %d", name, got[name], n)
		}
	}
	if _, err := cgroups.New(cgroups.Config{Metrics: reg}); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}

// units is systemd as far as this package needs it.
type units struct {
	tree  *cgroupstest.Tree
	calls []string
	dirs  map[string]string // by unit
}

func (u *units) Start(_ context.Context, unit, parent string) error {
	u.calls = append(u.calls, "start "+unit+" in "+parent)
	u.dirs[unit] = path.Join(u.dirs[parent], "/", unit)
	u.tree.Make(u.dirs[unit])
	return nil
}

func (u *units) Set(_ context.Context, unit, _ string, r cgroups.Resources) error {
	u.calls = append(u.calls, "set "+unit)
	if r.CPUShares != nil {
		u.tree.Set(u.dirs[unit], "cpu.weight", "20")
	}
	return nil
}

func (u *units) Stop(_ context.Context, unit, _ string) error {
	u.calls = append(u.calls, "stop "+unit)
	return nil
}

func TestSystemd(t *testing.T) {
	tree := cgroupstest.NewTree(cgroups.V2)
	u := &units{tree: tree, dirs: map[string]string{"-.slice": "/"}}
	m := newManager(t, tree, cgroups.Config{Driver: cgroups.Systemd, Units: u})
	p := pod("b-1", "cpu=500m", "")
	const at = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb_1.slice"
	if got := m.CgroupParent(p); got != at {
		t.Errorf("CgroupParent = %q, want %q", got, at)
	}
	ok(t, m.Ensure(t.Context(), p))
	has(t, cgroups.V2, tree, at, nil, []string{"cpu.weight 20", "hugetlb.2MB.max 0"})
	want := []string{
		"start kubepods.slice in -.slice", "start kubepods-burstable.slice in kubepods.slice",
		"start kubepods-besteffort.slice in kubepods.slice",
		"start kubepods-burstable-podb_1.slice in kubepods-burstable.slice", "set kubepods-burstable-podb_1.slice",
	}
	if !slices.Equal(u.calls, want) {
		t.Errorf("systemd was asked\n%q, want\n%q", u.calls, want)
	}
	u.calls = nil
	ok(t, m.Ensure(t.Context(), p))
	if len(u.calls) > 0 {
		t.Errorf("a second time: %q", u.calls)
	}
	tree.Make("/kubepods.slice/kubepods-podx.scope")
	tree.Make("/kubepods.slice/kubepods-burstable.slice/kubepods-podx.slice") // at the wrong place
	found, err := m.Pods(t.Context())
	ok(t, err)
	if len(found) != 1 || found["b-1"].Path != at {
		t.Errorf("Pods = %v, want b-1 alone", found)
	}
	ok(t, m.Destroy(t.Context(), p.UID))
	if tree.Exists(at) || !slices.Equal(u.calls, []string{"stop kubepods-burstable-podb_1.slice"}) {
		t.Errorf("systemd was asked %q", u.calls)
	}
}
