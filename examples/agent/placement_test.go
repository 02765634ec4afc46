package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/numa"
)

// cpuset is what a container sees of the CPUs it may run on.
func (l *lab) cpuset(pod string) string {
	l.t.Helper()
	file := "/sys/fs/cgroup/cpuset/cpuset.cpus"
	if node.CgroupV2() {
		file = "/sys/fs/cgroup/cpuset.cpus.effective"
	}
	return strings.TrimSpace(l.ask("exec", pod, "--", "/testbox", "cat", file))
}

// quota is what a container sees of its CPU quota.
func (l *lab) quota(pod string) string {
	l.t.Helper()
	file := "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
	if node.CgroupV2() {
		file = "/sys/fs/cgroup/cpu.max"
	}
	return strings.TrimSpace(l.ask("exec", pod, "--", "/testbox", "cat", file))
}

// guaranteed is the manifest of a pod that gets a CPU of its own.
func guaranteed(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: '%s', args: [sleep, forever], resources: {limits: {cpu: '1', memory: 16Mi}}}
`, name, sampleimage.Testbox)
}

// A container has a CPU of its own, as seen from inside, and others leave it;
// whatever becomes of the agent, nothing moves.
func TestPlacementPinned(t *testing.T) {
	t.Parallel()
	m, err := numa.ReadSysfs(os.DirFS("/"))
	if err != nil || len(m.CPUs) < 2 || m.AllCPUs().Len() != runtime.NumCPU() || !m.AllCPUs().Has(0) {
		t.Skipf("this takes at least 2 CPUs, all of them ours; there are %v (%v)", m.AllCPUs(), err)
	}
	root, dirs := cgroupRoot(t)
	l := newLab(t)
	l.inCgroups(root)
	f, err := os.OpenFile(l.config(), os.O_APPEND|os.O_WRONLY, 0)
	l.must(err)
	_, err = f.WriteString("cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
	l.must(err)
	l.must(f.Close())
	l.write("shared.yaml", box("shared", "sleep, forever"))
	l.start()
	l.untilReady("shared")
	all := m.AllCPUs().String()
	if got := l.cpuset("shared"); got != all {
		t.Errorf("shared sees CPUs %q, want %q", got, all)
	}
	own := l.dryRun(guaranteed("own"))
	l.write("own.yaml", guaranteed("own"))
	l.untilReady("own")
	check := func(when string) {
		t.Helper()
		got, rest := l.cpuset("own"), l.cpuset("shared")
		if got != own || rest == all || strings.Contains(","+rest+",", ","+own+",") {
			t.Errorf("%s: own sees CPUs %q, want %q; shared sees %q", when, got, own, rest)
		}
	}
	check("at first")
	// No quota takes time from it, neither its own nor its pod's.
	quota := map[bool]string{false: "-1", true: "max 100000"}[node.CgroupV2()]
	if got := l.quota("own"); got != quota {
		t.Errorf("own has CPU quota %q inside, want %q", got, quota)
	}
	pod := "pod" + string(l.pods()["own"].UID)
	if got, err := cgroupFile(dirs, pod, "cpu", "cpu.cfs_quota_us", "cpu.max"); err != nil || got != quota {
		t.Errorf("the pod of own has CPU quota %q (%v), want %q", got, err, quota)
	}
	before := ids(l.containers())
	pid := l.pid(containerID(l.pods()["own"], "c"))
	l.kill()
	if got := mayRunOn(t, pid); got != own {
		t.Errorf("without an agent own may run on CPUs %s, want %s", got, own)
	}
	l.start()
	l.untilReady("own", "shared")
	check("after the agent's restart")
	if after := ids(l.containers()); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("containers before the restart %v, after it %v", before, after)
	}
	l.remove("own.yaml")
	l.untilGone("own")
	l.until("shared by all again", func(map[string]*v1.Pod) bool { return l.cpuset("shared") == all })
}

// mayRunOn are the CPUs that the kernel lets a process run on (proc_pid_status(5)).
func mayRunOn(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "Cpus_allowed_list:")
	return strings.Fields(rest)[0]
}

// dryRun is the CPU that "agent fit" says the pod would get.
func (l *lab) dryRun(manifest string) string {
	l.t.Helper()
	file := l.config() + ".pod"
	l.must(os.WriteFile(file, []byte(manifest), 0o600))
	lines := strings.Split(l.ask("fit", "-f", file), "\n")
	if len(lines) < 3 || len(strings.Fields(lines[2])) < 2 { // below the verdict and the header
		l.t.Fatalf("agent fit says %q", lines)
	}
	return strings.Fields(lines[2])[1]
}

// On a machine with several NUMA nodes a container has its CPU and its memory on
// one of them, as seen from inside.
func TestPlacementNUMA(t *testing.T) {
	t.Parallel()
	m, err := numa.ReadSysfs(os.DirFS("/"))
	if err != nil || len(m.Nodes) < 2 || m.AllCPUs().Len() != runtime.NumCPU() || !m.AllCPUs().Has(0) {
		t.Skipf("this takes at least 2 NUMA nodes, all of them ours; there are %v (%v)", m.AllNodes(), err)
	}
	root, _ := cgroupRoot(t)
	l := newLab(t)
	l.inCgroups(root)
	f, err := os.OpenFile(l.config(), os.O_APPEND|os.O_WRONLY, 0)
	l.must(err)
	_, err = f.WriteString("cpuManagerPolicy: static\nmemoryManagerPolicy: Static\ntopologyManagerPolicy: single-numa-node\nreservedSystemCPUs: '0'\n")
	l.must(err)
	l.must(f.Close())
	l.write("own.yaml", guaranteed("own"))
	l.start()
	l.untilReady("own")
	cpus, err := numa.ParseCPUs(l.cpuset("own"))
	l.must(err)
	file := "/sys/fs/cgroup/cpuset/cpuset.mems"
	if node.CgroupV2() {
		file = "/sys/fs/cgroup/cpuset.mems.effective"
	}
	nodes := strings.TrimSpace(l.ask("exec", "own", "--", "/testbox", "cat", file))
	want := ""
	for _, c := range m.CPUs {
		if cpus.Len() == 1 && cpus.Has(c.ID) {
			want = fmt.Sprint(c.Node)
		}
	}
	t.Logf("own runs on CPU %s with memory of node %s; the machine has CPUs %s on nodes %s", cpus, nodes, m.AllCPUs(), m.AllNodes())
	if want == "" || nodes != want {
		t.Errorf("own has CPUs %s and memory of nodes %q; want one CPU and the node it is on, %q", cpus, nodes, want)
	}
	l.remove("own.yaml")
	l.untilGone("own")
}
