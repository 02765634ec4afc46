package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/node"
)

// cgroupRoot makes a cgroup for a lab that is made after it, and removes it when
// the lab is gone. dirs are where it is.
func cgroupRoot(t *testing.T) (name string, dirs []string) {
	t.Helper()
	name = fmt.Sprintf("/nwlab-%d-%s", os.Getpid(), t.Name())
	if node.CgroupV2() {
		dirs = []string{filepath.Join("/sys/fs/cgroup", name)}
	} else {
		found, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if d := filepath.Dir(f); filepath.Base(d) != "unified" {
				dirs = append(dirs, filepath.Join(d, name))
			}
		}
	}
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, d := range dirs {
			var all []string
			_ = filepath.WalkDir(d, func(p string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					all = append(all, p)
				}
				return nil // what vanishes meanwhile need not be removed
			})
			for _, p := range slices.Backward(all) {
				if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("remove the lab's cgroup: %v", err)
				}
			}
		}
	})
	return name, dirs
}

// inCgroups has the agent keep pods' cgroups below a cgroup.
func (l *lab) inCgroups(name string) {
	l.t.Helper()
	b, err := os.ReadFile(l.config())
	l.must(err)
	content := strings.Replace(string(b), "cgroupsPerQOS: false\n", "cgroupRoot: "+name+"\nsystemReserved: {cpu: 100m, memory: 64Mi}\n", 1)
	l.must(os.WriteFile(l.config(), []byte(content), 0o600))
}

// cgroupFile reads a file of a pod's cgroup, by its name in cgroup v1 or v2.
func cgroupFile(dirs []string, pod, v1Controller, v1File, v2File string) (string, error) {
	for _, d := range dirs {
		file := v2File
		if !node.CgroupV2() {
			if strings.Split(d, "/")[4] != v1Controller {
				continue
			}
			file = v1File
		}
		b, err := os.ReadFile(filepath.Join(d, "kubepods", pod, file))
		return strings.TrimSpace(string(b)), err
	}
	return "", fmt.Errorf("no hierarchy for %s", v1Controller)
}

// Each pod has a cgroup of its own in the tree that people know from the
// kubelet, with its limits, and what ends leaves none.
func TestPodCgroups(t *testing.T) {
	t.Parallel()
	containerdtest.Required(t)
	root, dirs := cgroupRoot(t)
	l := newLab(t)
	l.inCgroups(root)
	l.configure("kubeletCgroups: " + root + "/agent\n")
	spec := func(name, resources string) string {
		return strings.Replace(box(name, "sleep, forever"), "args:", "resources: {"+resources+"}, args:", 1)
	}
	l.write("g.yaml", spec("g", "limits: {cpu: 200m, memory: 32Mi}"))
	l.write("b.yaml", spec("b", "requests: {cpu: 50m}, limits: {memory: 48Mi}"))
	l.write("e.yaml", spec("e", ""))
	l.start()
	pods := l.untilReady("g", "b", "e")
	of := func(name string) string {
		p := pods[name]
		return map[string]string{"g": "", "b": "burstable/", "e": "besteffort/"}[name] + "pod" + string(p.UID)
	}
	for _, tc := range []struct{ pod, v1Controller, v1File, v2File, v1Want, v2Want string }{
		{of("g"), "memory", "memory.limit_in_bytes", "memory.max", "33554432", "33554432"},
		{of("g"), "cpu", "cpu.cfs_quota_us", "cpu.max", "20000", "20000 100000"},
		{of("b"), "memory", "memory.limit_in_bytes", "memory.max", "50331648", "50331648"},
		{of("b"), "cpu", "cpu.shares", "cpu.weight", "51", ""},
		{of("e"), "cpu", "cpu.shares", "cpu.weight", "2", "1"},
	} {
		got, err := cgroupFile(dirs, tc.pod, tc.v1Controller, tc.v1File, tc.v2File)
		want := tc.v1Want
		if node.CgroupV2() {
			want = tc.v2Want
		}
		if err != nil || want != "" && got != want {
			t.Errorf("%s of %s is %q, %v; want %s", tc.v2File, tc.pod, got, err, want)
		}
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", l.cmd.Process.Pid))
	if n := strings.Count(string(own), ":"+root+"/agent\n"); err != nil || n < len(dirs) {
		t.Errorf("the agent is in\n%s%v; want kubeletCgroups in all %d hierarchies", own, err, len(dirs))
	}
	sum, err := l.api.Summary(t.Context(), false)
	l.must(err)
	if i := slices.IndexFunc(sum.Node.SystemContainers, func(c statsapi.ContainerStats) bool { return c.Name == statsapi.SystemContainerKubelet }); i < 0 {
		t.Errorf("the agent is not in the Summary: %+v", sum.Node.SystemContainers)
	} else if m := sum.Node.SystemContainers[i].Memory; *m.RSSBytes < 1<<20 {
		t.Errorf("the agent has %d bytes", *m.RSSBytes)
	}
	// The containers are in it.
	for name, p := range pods {
		pid := l.pid(containerID(p, "c"))
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		l.must(err)
		if !strings.Contains(string(b), "/kubepods/"+of(name)+"/") {
			t.Errorf("the container of %s is in\n%s", name, b)
		}
	}

	// A restart of the agent moves nothing. Pods that go meanwhile leave nothing.
	before := ids(l.containers())
	l.kill()
	l.start()
	l.untilReady("g", "b", "e")
	if now := ids(l.containers()); !slices.Equal(now, before) {
		t.Error("containers changed over a restart of the agent")
	}
	l.remove("g.yaml")
	l.kill()
	l.remove("b.yaml")
	l.start()
	l.untilGone("g", "b")
	for _, name := range []string{"g", "b"} {
		l.until("without the cgroup of "+name, func(map[string]*v1.Pod) bool {
			_, err := cgroupFile(dirs, of(name), "memory", "memory.limit_in_bytes", "memory.max")
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	l.remove("e.yaml")
	l.untilGone("e")
}
