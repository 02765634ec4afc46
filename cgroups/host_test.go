package cgroups_test

import (
	"errors"
	"path"
	"testing"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/cgroupstest"
)

func TestJoin(t *testing.T) {
	for _, v := range []cgroups.Version{cgroups.V1, cgroups.V2} {
		tree := cgroupstest.NewTree(v)
		tree.Put("/", 77, false)
		h := cgroups.Host{FS: tree}
		if err := h.Join(t.Context(), "/agents/this", 77); err != nil {
			t.Fatalf("v%d: %v", v, err)
		}
		for _, controller := range []string{"cpu", "memory"} {
			if got := procs(t, tree, v, controller, "/agents/this"); got != "77\n" {
				t.Errorf("v%d: %s: in the cgroup are %q", v, controller, got)
			}
		}
		if err := h.Join(t.Context(), "/agents/this", 99); err == nil {
			t.Errorf("v%d: a process that is not there has joined", v)
		}
	}
}

func TestRemoveFromHost(t *testing.T) {
	for _, v := range []cgroups.Version{cgroups.V1, cgroups.V2} {
		tree := cgroupstest.NewTree(v)
		tree.Put("/", 77, false)
		h := cgroups.Host{FS: tree}
		for range 2 {
			if err := h.Join(t.Context(), "/agents/this", 77); err != nil {
				t.Fatalf("v%d: %v", v, err)
			}
			if err := h.Remove(t.Context(), "/agents"); err == nil {
				t.Errorf("v%d: a cgroup with a process was removed", v)
			}
			if err := h.Join(t.Context(), "/", 77); err != nil {
				t.Fatalf("v%d: %v", v, err)
			}
			for range 2 { // the second time it is not there
				if err := h.Remove(t.Context(), "/agents"); err != nil {
					t.Errorf("v%d: %v", v, err)
				}
			}
			if err := h.Exists(t.Context(), "/agents/this"); !errors.Is(err, cgroups.ErrNotExist) {
				t.Errorf("v%d: it is still there: %v", v, err)
			}
		}
	}
}

// procs is cgroup.procs of a cgroup in the hierarchy of a controller.
func procs(t *testing.T, tree *cgroupstest.Tree, v cgroups.Version, controller, cgroup string) string {
	t.Helper()
	if v == cgroups.V2 {
		controller = ""
	}
	data, err := tree.Read(path.Join(cgroupstest.Mount, controller, cgroup, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestGather(t *testing.T) {
	for _, v := range []cgroups.Version{cgroups.V1, cgroups.V2} {
		tree := cgroupstest.NewTree(v)
		tree.Make("/other")
		for pid, cgroup := range map[int]string{1: "/", 2: "/", 30: "/", 31: "/", 40: "/other"} {
			tree.Put(cgroup, pid, false)
		}
		h := cgroups.Host{FS: tree, Kernel: func(pid int) bool { return pid == 2 }}
		n, err := h.Gather(t.Context(), "/system")
		hierarchies := 1
		if v == cgroups.V1 {
			hierarchies = 6
		}
		if err != nil || n != 2*hierarchies {
			t.Errorf("v%d: %d moves, %v; want 2 in each of %d hierarchies", v, n, err, hierarchies)
		}
		if got := procs(t, tree, v, "memory", "/system"); got != "30\n31\n" && got != "31\n30\n" {
			t.Errorf("v%d: in the cgroup are %q", v, got)
		}
		if n, err := h.Gather(t.Context(), "/system"); n != 0 || err != nil {
			t.Errorf("v%d: again %d moves, %v", v, n, err)
		}
		tree.Fail("read", "*", errors.New("no"))
		if _, err := h.Gather(t.Context(), "/system"); err == nil {
			t.Errorf("v%d: no error", v)
		}
	}
}

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		v          cgroups.Version
		want       string
	}{
		{"v2", "0::/user.slice/a\n", cgroups.V2, "/user.slice/a"},
		{"v2, removed", "0::/a (deleted)\n", cgroups.V2, "/a"},
		{"v2, none", "1:memory:/a\n", cgroups.V2, ""},
		{"v1", "5:memory:/a:b\n4:cpu,cpuacct:/a:b\n3:pids:/\n0::/\n", cgroups.V1, "/a:b"},
		{"v1, not one", "5:memory:/a\n4:cpuacct:/\n", cgroups.V1, ""},
		{"v1, nothing", "x\n::\n", cgroups.V1, ""},
	} {
		tree := cgroupstest.NewTree(tc.v)
		tree.File("/proc/9/cgroup", tc.file)
		got, err := cgroups.Host{FS: tree}.Of(t.Context(), 9)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, %v; want %q", tc.name, got, err, tc.want)
		}
		if _, err := (cgroups.Host{FS: tree}).Of(t.Context(), 10); err == nil {
			t.Errorf("%s: process 10 is not there", tc.name)
		}
	}
}
