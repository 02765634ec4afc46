package cgroups

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		name              Name
		cgroupfs, systemd string
	}{
		{nil, "/", "/"},
		{Name{""}, "/", "/"},
		{Name{"test"}, "/test", "/test.slice"},
		{Name{"x", "y", "z"}, "/x/y/z", "/x.slice/x-y.slice/x-y-z.slice"},
		{Name{"kubepods", "burstable", "podab-cd"}, "/kubepods/burstable/podab-cd",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice"},
	} {
		if got := tc.name.Cgroupfs(); got != tc.cgroupfs {
			t.Errorf("%q.Cgroupfs() = %q, want %q", tc.name, got, tc.cgroupfs)
		}
		got, err := tc.name.Systemd()
		if err != nil || got != tc.systemd {
			t.Errorf("%q.Systemd() = %q, %v, want %q", tc.name, got, err, tc.systemd)
		}
	}
}

func TestParseNames(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Name
	}{
		{"", nil}, {"/", nil}, {"/a", Name{"a"}}, {"a/b", Name{"a", "b"}}, {"/a/", Name{"a", ""}},
	} {
		if got := parseCgroupfs(tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("ParseCgroupfs(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
	for _, tc := range []struct {
		in   string
		want Name
	}{
		{"/test", Name{"test"}}, {"/test.slice", Name{"test"}}, {"/", Name{"/"}},
		{"/a.slice/a-b_c.slice", Name{"a", "b-c"}},
	} {
		if got := parseSystemd(tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("ParseSystemd(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestSystemdRefusesEmptyComponents(t *testing.T) {
	for _, n := range []Name{{"a", ""}, {"", "a"}, {"a_b"}, {"a/b"}} {
		if got, err := n.Systemd(); err == nil {
			t.Errorf("%q.Systemd() = %q, want an error", n, got)
		}
	}
}

func TestChild(t *testing.T) {
	parent := parseCgroupfs("/a/")
	b, _ := parent.Child("b")
	c, _ := b.Child("c")
	if _, err := b.Child("d"); err != nil {
		t.Fatal(err)
	}
	if want := (Name{"a", "", "b", "c"}); !slices.Equal(c, want) {
		t.Errorf("after another child: %q, want %q", c, want)
	}
	for _, bad := range []string{"", "x/y", "x_y"} {
		var wrong *NameError
		if _, err := b.Child(bad); !errors.As(err, &wrong) || wrong.Component != bad {
			t.Errorf("Child(%q) = %v, want a NameError of it", bad, err)
		}
	}
}

func TestUnitOf(t *testing.T) {
	for _, tc := range []struct{ path, unit, parent string }{
		{"/kubepods.slice", "kubepods.slice", "-.slice"},
		{"/a.slice/a-b.slice", "a-b.slice", "a.slice"},
	} {
		if unit, parent := unitOf(tc.path); unit != tc.unit || parent != tc.parent {
			t.Errorf("unitOf(%q) = %q, %q, want %q, %q", tc.path, unit, parent, tc.unit, tc.parent)
		}
	}
}

func TestPodOf(t *testing.T) {
	tr := newTree("/system")
	for _, tc := range []struct {
		path  string
		uid   types.UID
		class v1.PodQOSClass
	}{
		{"/system/kubepods/pod1-2", "1-2", v1.PodQOSGuaranteed},
		{"/system/kubepods/burstable/podx", "x", v1.PodQOSBurstable},
		{"/system/kubepods/besteffort/podx", "x", v1.PodQOSBestEffort},
		{"/system/kubepods/burstable/podx/container.scope", "", ""},
		{"/system/kubepods/burstable", "", ""},
		{"/system/kubepods/pod", "", ""},
		{"/system/kubelet", "", ""},
		{"/other/kubepods/podx", "", ""},
		{"/system/kubepods/mypodx", "", ""},
		{"/podx", "", ""},
		{"/", "", ""},
	} {
		uid, class, ok := tr.podOf(parseCgroupfs(tc.path))
		if uid != tc.uid || class != tc.class || ok != (tc.uid != "") {
			t.Errorf("podOf(%s) = %q, %q, %v; want %q, %q", tc.path, uid, class, ok, tc.uid, tc.class)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"/", "", "/a/", "a-b", "/kubepods/burstable/pod1", "//", "a_b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n := parseCgroupfs(s)
		if p, err := n.Systemd(); err == nil && len(n) > 0 && n[0] != "" {
			if back := parseSystemd(p); !slices.Equal(back, n) && !slices.ContainsFunc(n, hasSuffixSlice) {
				t.Errorf("%q became %q and came back as %q", n, p, back)
			}
		}
		parseSystemd(s)
		newTree("/").podOf(n)
	})
}

func hasSuffixSlice(s string) bool { return len(s) >= 6 && s[len(s)-6:] == sliceSuffix }
