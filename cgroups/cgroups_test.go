package cgroups_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

// versions runs a test on a machine of each version.
func versions(t *testing.T, f func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree)) {
	for _, v := range []cgroups.Version{cgroups.V1, cgroups.V2} {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, v, cgroupstest.NewTree(v)) })
		})
	}
}

func newManager(t *testing.T, tree *cgroupstest.Tree, cfg cgroups.Config) *cgroups.Manager {
	t.Helper()
	cfg.FS, cfg.Notifier, cfg.Kill = tree, tree, tree.Kill
	m, err := cgroups.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// pod has one container, with requests and limits such as "cpu=1 memory=1Mi".
func pod(uid, requests, limits string) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = uid, "ns", types.UID(uid)
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}}
	return p
}

func list(s string) v1.ResourceList {
	out := v1.ResourceList{}
	for f := range strings.FieldsSeq(s) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// has compares files of a cgroup: those of v1 or of v2, "file value" each.
func has(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree, cgroup string, v1, v2 []string) {
	t.Helper()
	want := v1
	if v == cgroups.V2 {
		want = v2
	}
	for _, w := range want {
		file, value, _ := strings.Cut(w, " ")
		if got := tree.Value(cgroup, file); got != value {
			t.Errorf("%s of %s is %q, want %q", file, cgroup, got, value)
		}
	}
}

const (
	burstable = "/kubepods/burstable"
	podB      = "/kubepods/burstable/podb-1"
)

func TestEnsure(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{PodOptions: cgroups.PodOptions{Pids: 100, ReserveMemory: true}})
		p := pod("b-1", "cpu=500m memory=1Mi", "cpu=1 memory=2Mi hugepages-2Mi=4Mi hugepages-8Mi=8Mi")
		if got := m.CgroupParent(p); got != podB {
			t.Errorf("CgroupParent = %q, want %q", got, podB)
		}
		ok(t, m.Ensure(t.Context(), p))
		ok(t, m.Exists(t.Context(), p.UID))
		has(t, v, tree, podB,
			[]string{"cpu.shares 512", "cpu.cfs_quota_us 100000", "memory.limit_in_bytes 2097152", "pids.max 100",
				"hugetlb.2MB.limit_in_bytes 4194304", "hugetlb.1GB.limit_in_bytes 0", "cpuset.cpus 0-1", "cpuset.mems 0"},
			[]string{"cpu.weight 20", "cpu.max 100000 100000", "memory.max 2097152", "memory.low 1048576", "memory.min 0", "pids.max 100",
				"hugetlb.2MB.max 4194304", "hugetlb.1GB.max 0"})
		tree.Writes()
		ok(t, m.Ensure(t.Context(), p))
		if w := tree.Writes(); len(w) > 0 {
			t.Errorf("a second time writes %q", w)
		}
		for uid, class := range map[string]string{"g": "", "e": "besteffort/"} {
			other := pod(uid, "", "")
			if class == "" {
				other = pod(uid, "", "cpu=1 memory=1Mi")
			}
			ok(t, m.Ensure(t.Context(), other))
			if want := "/kubepods/" + class + "pod" + uid; m.CgroupParent(other) != want || !tree.Exists(want) {
				t.Errorf("pod %s is at %s, want %s to exist", uid, m.CgroupParent(other), want)
			}
		}
	})
}

// What somebody changed comes back; what the pod asks for anew waits for its
// containers.
func TestEnsureMendsDriftAndLeavesResizesAlone(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=500m memory=1Mi", "cpu=1 memory=4Mi")))
		tree.Set(podB, "cpu.shares", "7")
		tree.Set(podB, "cpu.weight", "7")
		tree.Set(podB, "pids.max", "")
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=100m memory=1Mi", "cpu=500m memory=2Mi")))
		has(t, v, tree, podB,
			[]string{"cpu.shares 512", "cpu.cfs_quota_us 100000", "memory.limit_in_bytes 4194304"},
			[]string{"cpu.weight 20", "cpu.max 100000 100000", "memory.max 4194304"})
	})
}

// A limit that a pod gets is for Raise and Lower as well.
func TestEnsureLeavesNewLimitsAlone(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=500m memory=1Mi", "")))
		limited := pod("b-1", "cpu=500m memory=1Mi", "cpu=1 memory=4Mi")
		ok(t, m.Ensure(t.Context(), limited))
		has(t, v, tree, podB, []string{"cpu.cfs_quota_us -1"}, []string{"cpu.max max 100000", "memory.max max"})
		ok(t, m.Lower(t.Context(), limited, v1.ResourceCPU))
		ok(t, m.Lower(t.Context(), limited, v1.ResourceMemory))
		has(t, v, tree, podB, []string{"cpu.cfs_quota_us 100000", "memory.limit_in_bytes 4194304"}, []string{"cpu.max 100000 100000", "memory.max 4194304"})
	})
}

// A new process does not know what a cgroup was given: it takes nothing away
// that containers may have, and makes up for what was never written.
func TestEnsureAfterRestart(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		big, small := pod("b-1", "cpu=500m memory=1Mi", "cpu=1 memory=4Mi"), pod("b-1", "cpu=100m memory=1Mi", "cpu=500m memory=2Mi")
		ok(t, newManager(t, tree, cgroups.Config{}).Ensure(t.Context(), big))
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), small))
		has(t, v, tree, podB,
			[]string{"cpu.shares 102", "cpu.cfs_quota_us 100000", "memory.limit_in_bytes 4194304"},
			[]string{"cpu.weight 4", "cpu.max 100000 100000", "memory.max 4194304"})
		ok(t, m.Lower(t.Context(), small, v1.ResourceMemory))
		ok(t, m.Lower(t.Context(), small, v1.ResourceCPU))
		ok(t, m.Ensure(t.Context(), small))
		has(t, v, tree, podB,
			[]string{"cpu.cfs_quota_us 50000", "memory.limit_in_bytes 2097152"}, []string{"cpu.max 50000 100000", "memory.max 2097152"})

		// A limit that was never written, and more is in use by now.
		tree.Set(podB, "memory.limit_in_bytes", "9223372036854771712")
		tree.Set(podB, "memory.max", "max")
		used(tree, podB, "3145728")
		m = newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), small))
		has(t, v, tree, podB, []string{"memory.limit_in_bytes 9223372036854771712"}, []string{"memory.max max"})
		used(tree, podB, "4096")
		ok(t, m.Ensure(t.Context(), small))
		has(t, v, tree, podB, []string{"memory.limit_in_bytes 2097152"}, []string{"memory.max 2097152"})
	})
}

func used(tree *cgroupstest.Tree, cgroup, bytes string) {
	tree.Set(cgroup, "memory.usage_in_bytes", bytes)
	tree.Set(cgroup, "memory.current", bytes)
}

// Spec: growing, the limit comes before the request; shrinking, after it.
func TestResizeOrder(t *testing.T) {
	small, big := pod("b-1", "cpu=100m memory=1Mi", "cpu=200m memory=2Mi"), pod("b-1", "cpu=200m memory=2Mi", "cpu=400m memory=4Mi")
	for _, tc := range []struct {
		name     string
		from, to *v1.Pod
		resource v1.ResourceName
		raise    bool
		v1, v2   []string // files written, in order
	}{
		{"cpu up", small, big, v1.ResourceCPU, true, []string{"cpu.cfs_quota_us", "cpu.shares"}, []string{"cpu.max", "cpu.weight"}},
		{"cpu down", big, small, v1.ResourceCPU, false, []string{"cpu.shares", "cpu.cfs_quota_us"}, []string{"cpu.weight", "cpu.max"}},
		{"cpu up, nothing to lower", small, big, v1.ResourceCPU, false, nil, nil},
		{"cpu down, nothing to raise", big, small, v1.ResourceCPU, true, nil, nil},
		{"memory up", small, big, v1.ResourceMemory, true, []string{"memory.limit_in_bytes"}, []string{"memory.max", "memory.low"}},
		{"memory down", big, small, v1.ResourceMemory, false, []string{"memory.limit_in_bytes"}, []string{"memory.low", "memory.max"}},
	} {
		versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
			m := newManager(t, tree, cgroups.Config{PodOptions: cgroups.PodOptions{ReserveMemory: true}})
			ok(t, m.Ensure(t.Context(), tc.from))
			tree.Writes()
			call := m.Lower
			if tc.raise {
				call = m.Raise
			}
			ok(t, call(t.Context(), tc.to, tc.resource))
			var got []string
			for _, w := range tree.Writes() {
				file, _, _ := strings.Cut(w, " ")
				got = append(got, path.Base(file))
			}
			want := tc.v1
			if v == cgroups.V2 {
				want = tc.v2
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: wrote %q, want %q", tc.name, got, want)
			}
		})
	}
}

func TestMemoryInUseIsNotTaken(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "memory=1Mi", "cpu=1 memory=4Mi")))
		small := pod("b-1", "memory=1Mi", "cpu=1 memory=2Mi")
		used(tree, podB, "2097152")
		for name, call := range map[string]func() error{
			"Lower":  func() error { return m.Lower(t.Context(), small, v1.ResourceMemory) },
			"Update": func() error { return m.Update(t.Context(), small) },
		} {
			err := call()
			if !errors.Is(err, cgroups.ErrInUse) || !strings.Contains(err.Error(), "(2097152) below current usage (2097152)") {
				t.Errorf("%s = %v, want ErrInUse with both numbers", name, err)
			}
		}
		tree.Fail("read", usageFile(v), cgroupstest.ErrInjected)
		if err := m.Lower(t.Context(), small, v1.ResourceMemory); !errors.Is(err, cgroups.ErrInUse) || !errors.Is(err, cgroupstest.ErrInjected) {
			t.Errorf("usage not known: %v, want ErrInUse and why", err)
		}
		tree.Fail("read", usageFile(v), nil)
		has(t, v, tree, podB, []string{"memory.limit_in_bytes 4194304"}, []string{"memory.max 4194304"})
		used(tree, podB, "2097151")
		ok(t, m.Update(t.Context(), small))
		has(t, v, tree, podB, []string{"memory.limit_in_bytes 2097152"}, []string{"memory.max 2097152"})
	})
}

func usageFile(v cgroups.Version) string {
	if v == cgroups.V2 {
		return cgroupstest.Mount + podB + "/memory.current"
	}
	return cgroupstest.Mount + "/memory" + podB + "/memory.usage_in_bytes"
}

// The reference keeps limits that a pod no longer has; this takes them away.
func TestUpdateTakesLimitsAway(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=100m", "cpu=1 memory=4Mi")))
		ok(t, m.Update(t.Context(), pod("b-1", "cpu=100m", "")))
		has(t, v, tree, podB,
			[]string{"cpu.cfs_quota_us -1", "memory.limit_in_bytes 9223372036854771712"}, []string{"cpu.max max 100000", "memory.max max"})
		if err := m.Update(t.Context(), pod("other", "cpu=100m", "")); !errors.Is(err, cgroups.ErrNotExist) {
			t.Errorf("of a pod without a cgroup: %v, want ErrNotExist", err)
		}
	})
}

// A value that is not taken is an error, and keeps back none of the others.
func TestEnsureTellsOfValuesThatWereNotTaken(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("other", "", ""))) // the tiers are there
		file := cgroupstest.Mount + podB + "/cpu.weight"
		if v == cgroups.V1 {
			file = cgroupstest.Mount + "/cpu" + podB + "/cpu.shares"
		}
		tree.Fail("write", file, syscall.EINVAL)
		p := pod("b-1", "cpu=500m memory=1Mi", "cpu=1 memory=2Mi")
		if err := m.Ensure(t.Context(), p); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), file) {
			t.Errorf("Ensure = %v, want EINVAL of %s", err, file)
		}
		has(t, v, tree, podB, []string{"memory.limit_in_bytes 2097152"}, []string{"memory.max 2097152"})
		tree.Fail("write", file, nil)
		ok(t, m.Ensure(t.Context(), p))
		has(t, v, tree, podB, []string{"cpu.shares 512"}, []string{"cpu.weight 20"})
	})
}

func TestControllers(t *testing.T) {
	for _, tc := range []struct {
		v       cgroups.Version
		have    string
		missing string // named in the error; "": it works
	}{
		{cgroups.V1, "cpu cpuacct cpuset memory pids", ""},
		{cgroups.V1, "cpu cpuacct cpuset memory", "pids"},
		{cgroups.V1, "cpu cpuacct memory pids hugetlb", "cpuset"},
		{cgroups.V2, "cpu memory", ""},
		{cgroups.V2, "cpu cpuset pids", "memory"},
		{cgroups.V2, "memory", "cpu"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tree := cgroupstest.NewTree(tc.v)
			tree.SetControllers(strings.Fields(tc.have)...)
			m := newManager(t, tree, cgroups.Config{PodOptions: cgroups.PodOptions{Pids: 10}})
			err := m.Ensure(t.Context(), pod("b-1", "cpu=1", "memory=2Mi"))
			var lacks *cgroups.ControllerError
			switch {
			case tc.missing == "":
				ok(t, err)
			case !errors.As(err, &lacks) || lacks.Controller != tc.missing:
				t.Errorf("v%d with %s: %v, want an error of %s", tc.v, tc.have, err, tc.missing)
			}
		})
	}
}

func TestRootIsNotMade(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{Root: "/mine"})
		p := pod("b-1", "cpu=1", "")
		if err := m.Ensure(t.Context(), p); !errors.Is(err, cgroups.ErrNotExist) || !strings.Contains(err.Error(), "/mine") {
			t.Errorf("Ensure = %v, want that /mine does not exist", err)
		}
		if v == cgroups.V2 { // handed down by nobody
			tree.Make("/mine")
			tree.Put("/mine", 7, false)
			var lacks *cgroups.ControllerError
			if err := m.Ensure(t.Context(), p); !errors.As(err, &lacks) {
				t.Errorf("Ensure in a root without controllers = %v, want a ControllerError", err)
			}
			return
		}
		tree.Make("/mine")
		ok(t, m.Ensure(t.Context(), p))
		if got := m.CgroupParent(p); got != "/mine"+podB || !tree.Exists(got) {
			t.Errorf("the pod is at %s", got)
		}
	})
}

// The kernel gives the CPUs of a tier to the second pod in it, and nobody writes them. What lies
// above the tiers is left as it is.
func TestCPUSetsOfATierAreInherited(t *testing.T) {
	tree := cgroupstest.NewTree(cgroups.V1)
	tree.Make("/mine")
	m := newManager(t, tree, cgroups.Config{Root: "/mine"})
	ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=500m", "")))
	tree.Writes()
	ok(t, m.Ensure(t.Context(), pod("b-2", "cpu=500m", "")))
	for _, w := range tree.Writes() {
		if strings.Contains(w, "cpuset") {
			t.Errorf("the second pod of a tier has %q written", w)
		}
	}
	has(t, cgroups.V1, tree, "/mine/kubepods/burstable/podb-2", []string{"cpuset.cpus 0-1", "cpuset.mems 0"}, nil)
	if data, err := tree.Read(cgroupstest.Mount + "/cpuset/mine/cgroup.clone_children"); string(data) != "0" || err != nil {
		t.Errorf("the root's flag: %q, %v, want it left alone", data, err)
	}
}

// A kernel that does not know the flag.
func TestCPUSetsWithoutInheritance(t *testing.T) {
	tree := cgroupstest.NewTree(cgroups.V1)
	tree.Fail("write", cgroupstest.Mount+"/cpuset/kubepods/burstable/cgroup.clone_children", syscall.ENOENT)
	m := newManager(t, tree, cgroups.Config{})
	for _, uid := range []string{"b-1", "b-2"} {
		ok(t, m.Ensure(t.Context(), pod(uid, "cpu=500m", "")))
		has(t, cgroups.V1, tree, "/kubepods/burstable/pod"+uid, []string{"cpuset.cpus 0-1", "cpuset.mems 0"}, nil)
	}
}

// Somebody removes a tier, with all in it.
func TestEnsureMakesTiersAnew(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("g", "", "cpu=1 memory=1Mi")))
		for _, p := range []string{burstable, "/cpu" + burstable, "/memory" + burstable, "/pids" + burstable, "/cpuset" + burstable} {
			_ = tree.Rmdir(cgroupstest.Mount + p)
		}
		ok(t, m.Ensure(t.Context(), pod("b-1", "cpu=500m", "")))
		has(t, v, tree, podB, []string{"cpu.shares 512"}, []string{"cpu.weight 20"})
	})
}

func TestWithoutPodCgroups(t *testing.T) {
	m := newManager(t, cgroupstest.NewTree(cgroups.V2), cgroups.Config{NoPodCgroups: true})
	ctx, cancel := context.WithCancel(t.Context())
	p := pod("b-1", "cpu=1", "")
	ok(t, m.Ensure(ctx, p))
	ok(t, m.Update(ctx, p))
	ok(t, m.Raise(ctx, p, v1.ResourceCPU))
	ok(t, m.Exists(ctx, "whoever"))
	ok(t, m.Destroy(ctx, p.UID))
	if got := m.CgroupParent(p); got != "" {
		t.Errorf("CgroupParent = %q, want none", got)
	}
	cancel()
	ok(t, m.Run(ctx))
}

func TestUIDsThatAreNoNames(t *testing.T) {
	m := newManager(t, cgroupstest.NewTree(cgroups.V2), cgroups.Config{})
	for _, uid := range []string{"", "a/../b", "a_b"} {
		p := pod(uid, "", "")
		var wrong *cgroups.NameError
		if err := m.Ensure(t.Context(), p); !errors.As(err, &wrong) {
			t.Errorf("Ensure of %q = %v, want a NameError", uid, err)
		}
		if err := m.Destroy(t.Context(), p.UID); !errors.As(err, &wrong) {
			t.Errorf("Destroy of %q = %v, want a NameError", uid, err)
		}
		if got := m.CgroupParent(p); got != "" {
			t.Errorf("CgroupParent of %q = %q", uid, got)
		}
	}
}

func TestVersions(t *testing.T) {
	tree := cgroupstest.NewTree(cgroups.V1)
	p := pod("b-1", "cpu=1", "")
	if err := newManager(t, tree, cgroups.Config{FailOnV1: true}).Ensure(t.Context(), p); !errors.Is(err, cgroups.ErrUnsupported) {
		t.Errorf("FailOnV1: %v, want ErrUnsupported", err)
	}
	if err := newManager(t, tree, cgroups.Config{Version: cgroups.V2}).Ensure(t.Context(), p); err == nil {
		t.Error("a machine of another version is taken")
	}
	var told []string
	m := newManager(t, tree, cgroups.Config{Event: func(_, reason, _ string) { told = append(told, reason) }})
	ok(t, m.Ensure(t.Context(), p))
	if !slices.Equal(told, []string{"CgroupV1"}) {
		t.Errorf("told of %q, want CgroupV1", told)
	}
}

func TestFacts(t *testing.T) {
	versions(t, func(t *testing.T, v cgroups.Version, tree *cgroupstest.Tree) {
		m := newManager(t, tree, cgroups.Config{})
		got, err := m.Facts(t.Context())
		ok(t, err)
		if got.Version != v || !got.Swap || got.Pressure != (v == cgroups.V2) || !slices.Equal(got.Hugepages, []int64{2 << 20, 1 << 30}) ||
			!slices.Contains(got.Controllers, "memory") {
			t.Errorf("%+v", got)
		}
		tree.Set("/", "memory.memsw.limit_in_bytes", "")
		tree.Set("/kubepods", "memory.swap.max", "")
		tree.Set("/", "cpu.pressure", "")
		got, err = m.Facts(t.Context())
		if ok(t, err); got.Swap || got.Pressure {
			t.Errorf("without swap and pressure: %+v", got)
		}
		if got, err := newManager(t, tree, cgroups.Config{NoPodCgroups: true}).Facts(t.Context()); err != nil || got.Version != v {
			t.Errorf("without cgroups of pods: %+v, %v", got, err)
		}
	})
}

// A call that hangs costs one goroutine and one time-out for its file, and
// nothing for other pods.
func TestHangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("other", "cpu=1", "")))
		release := tree.Hang("write", cgroupstest.Mount+podB+"/memory.max")
		p := pod("b-1", "cpu=500m", "cpu=1 memory=2Mi")
		start := time.Now()
		if err := m.Ensure(t.Context(), p); !errors.Is(err, cgroups.ErrNoAnswer) || !strings.Contains(err.Error(), "memory.max") {
			t.Errorf("Ensure = %v, want no answer of memory.max", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("waited %v, want 10s", d)
		}
		start = time.Now()
		if err := m.Ensure(t.Context(), p); !errors.Is(err, cgroups.ErrNoAnswer) {
			t.Errorf("the next Ensure = %v, want no answer", err)
		}
		ok(t, m.Ensure(t.Context(), pod("third", "cpu=1", "")))
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %v again", d)
		}
		release()
		synctest.Wait()
		ok(t, m.Ensure(t.Context(), p))
	})
}

// Calls for one pod take turns, and waiting for one's turn ends with ctx.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := cgroupstest.NewTree(cgroups.V2)
		m := newManager(t, tree, cgroups.Config{})
		ok(t, m.Ensure(t.Context(), pod("other", "cpu=1", "")))
		release := tree.Hang("mkdir", cgroupstest.Mount+podB)
		defer release()
		p := pod("b-1", "cpu=1", "")
		go m.Ensure(t.Context(), p)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Destroy(ctx, p.UID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Destroy = %v, want to wait for its turn in vain", err)
		}
	})
}
