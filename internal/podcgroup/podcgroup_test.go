package podcgroup_test

import (
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/podcgroup"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"pod1-2": "1-2", "kubepods-burstable-pod1_2.slice": "1-2", "kubepods-pod12.slice": "12",
		"burstable": "", "kubepods-burstable.slice": "", "x.scope": "", "pod": "",
	} {
		if got := podcgroup.PodUID(name); got != want {
			t.Errorf("PodUID(%q) = %q; want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"cri-containerd-abc.scope": "abc", "crio-abc.scope": "abc", "abc": "abc", "abc.scope": "abc", "crio-conmon-x.scope": "x"} {
		if got := podcgroup.ContainerID(name); got != want {
			t.Errorf("ContainerID(%q) = %q; want %q", name, got, want)
		}
	}
}

func TestLocate(t *testing.T) {
	const slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_12.slice"
	for _, tc := range []struct{ path, pod, container string }{
		{"", "", ""}, {"/", "", ""}, {"/system.slice/sshd.service", "", ""}, {"/kubepods", "", ""}, {"/kubepods/burstable", "", ""},
		{"/kubepods/podab-12", "ab-12", ""},
		{"kubepods/./burstable//podab-12/c1/init.scope", "ab-12", "c1"},
		{"/my/root/kubepods/podab-12/c1", "ab-12", "c1"},
		{slice, "ab-12", ""},
		{slice + "/cri-containerd-c1.scope", "ab-12", "c1"},
		{slice + "/crio-c1.scope/nested/deep", "ab-12", "c1"},
		{"/a.slice/a-kubepods.slice/a-kubepods-podab_12.slice/docker-c1.scope", "ab-12", "c1"},
		{"/podman/podab-12/c1", "", ""},
		{"/system.slice/kubepods-x.service/podab-12", "", ""},
		{"/kubepods/pod/c1", "", ""},
	} {
		if pod, c := podcgroup.Locate(tc.path); pod != tc.pod || c != tc.container {
			t.Errorf("Locate(%q) = %q, %q; want %q, %q", tc.path, pod, c, tc.pod, tc.container)
		}
	}
}

// Paths come from the kernel's log, into which programs write their names.
func FuzzLocate(f *testing.F) {
	f.Add("/kubepods.slice/kubepods-podab_12.slice/cri-containerd-c1.scope")
	f.Add("/kubepods/burstable/podab-12/c1")
	f.Fuzz(func(t *testing.T, path string) {
		pod, container := podcgroup.Locate(path)
		if pod == "" && container != "" {
			t.Errorf("Locate(%q): container %q of no pod", path, container)
		}
		if strings.Contains(pod+container, "/") {
			t.Errorf("Locate(%q) = %q, %q: not elements of a path", path, pod, container)
		}
		if again, c := podcgroup.Locate("/any/root" + strings.TrimRight("/"+path, "/") + "/x"); pod != "" && (again != pod || container != "" && c != container) {
			t.Errorf("Locate(%q) = %q, %q, and below a root %q, %q", path, pod, container, again, c)
		}
	})
}
