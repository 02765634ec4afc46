package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/node"
)

// sized is a pod with a UID of its own, so that an edit of its manifest is a
// change of the same pod.
func sized(name, steps, cpu, memory, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, uid: 00000000-0000-4000-8000-%012[6]d}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: '%[5]s', args: [%[2]s], resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {cpu: %[3]s, memory: %[4]s}}%[7]s}
`, name, steps, cpu, memory, sampleimage.Testbox, int(name[0]), more)
}

// limits are what a container sees of its memory limit and CPU quota, in bytes
// and microseconds.
func (l *lab) limits(pod string) (memory, quota string) {
	l.t.Helper()
	files := []string{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"}
	if node.CgroupV2() {
		files = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"}
	}
	out := strings.Fields(l.ask("exec", pod, "--", "/testbox", "cat", files[0], "cat", files[1]))
	return out[0], out[1]
}

func condition(p *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

// The resources of running containers change in place, as far as the node has
// them and the container can do with them.
func TestResized(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const restart = ", resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"
	l.write("a.yaml", sized("a", "sleep, forever", "100m", "64Mi", ""))
	l.write("b.yaml", sized("b", "sleep, forever", "100m", "64Mi", restart))
	l.write("c.yaml", sized("c", "alloc, '40', out, full, sleep, forever", "500m", "96Mi", ""))
	l.start()
	pods := l.untilReady("a", "b", "c")
	l.until("memory in use", func(map[string]*v1.Pod) bool { return l.ask("logs", "c") == "full\n" })
	a, b := containerID(pods["a"], "c"), containerID(pods["b"], "c")

	l.write("a.yaml", sized("a", "sleep, forever", "200m", "96Mi", ""))
	l.write("b.yaml", sized("b", "sleep, forever", "100m", "96Mi", restart))
	l.write("c.yaml", sized("c", "alloc, '40', out, full, sleep, forever", "500m", "24Mi", ""))
	pods = l.until("resized", func(pods map[string]*v1.Pod) bool {
		s := &pods["b"].Status.ContainerStatuses[0]
		c := condition(pods["c"], v1.PodResizeInProgress)
		return pods["a"].Status.ContainerStatuses[0].Resources.Limits.Memory().String() == "96Mi" && condition(pods["a"], v1.PodResizeInProgress) == nil &&
			s.RestartCount == 1 && s.State.Running != nil && c != nil && c.Reason == v1.PodReasonError
	})
	if memory, quota := l.limits("a"); memory != "100663296" || quota != "20000" || containerID(pods["a"], "c") != a || pods["a"].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("a sees memory %s, quota %s, in container %s; it was %s", memory, quota, containerID(pods["a"], "c"), a)
	}
	if memory, _ := l.limits("b"); memory != "100663296" || containerID(pods["b"], "c") == b {
		t.Errorf("b sees memory %s, in container %s", memory, containerID(pods["b"], "c"))
	}
	if c := condition(pods["c"], v1.PodResizeInProgress); !strings.Contains(c.Message, "below current usage") {
		t.Errorf("c is told %q", c.Message)
	}
	if memory, _ := l.limits("c"); memory != "100663296" {
		t.Errorf("c sees memory %s", memory)
	}
	if got := l.ask("describe", "pod", "a"); !strings.Contains(got, "ResizeCompleted") {
		t.Errorf("no word of it in\n%s", got)
	}

	l.write("a.yaml", strings.Replace(sized("a", "sleep, forever", "4000", "96Mi", ""), "cpu: 10m", "cpu: 4000", 1))
	l.until("refused", func(pods map[string]*v1.Pod) bool {
		c := condition(pods["a"], v1.PodResizePending)
		return c != nil && c.Reason == v1.PodReasonInfeasible
	})
	before := ids(l.containers())
	l.kill()
	l.start()
	l.untilReady("a", "b", "c")
	if after := ids(l.containers()); !slices.Equal(before, after) {
		t.Errorf("containers before the agent's restart %v, after it %v", before, after)
	}
}

// A container's exit may start the whole pod over, in its sandbox.
func TestRestartedAll(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("a.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: i, image: '%[1]s', args: [out, ready]}
  containers:
  - {name: c, image: '%[1]s', args: [sleep, forever]}
  - name: d
    image: '%[1]s'
    args: [sleep, 1s, exit, '42']
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
`, sampleimage.Testbox))
	l.start()
	first := l.untilReady("a")["a"]
	sandbox := l.sandboxes()[0].GetId()
	l.until("all restarted", func(pods map[string]*v1.Pod) bool {
		p := pods["a"]
		started := func(s v1.ContainerStatus) bool { return s.RestartCount > 0 }
		return slices.ContainsFunc(p.Status.InitContainerStatuses, started) &&
			!slices.ContainsFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return !started(s) }) &&
			containerID(p, "c") != containerID(first, "c")
	})
	if got := l.sandboxes(); len(got) != 1 || got[0].GetId() != sandbox {
		t.Errorf("sandboxes %v, want %s alone", got, sandbox)
	}
}
