package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/node"
)

// wanting is a pod's manifest with a spec of resources, and more fields.
func wanting(name, resources, more, args string) string {
	s := strings.Replace(box(name, args), "args:", "resources: {"+resources+"}, args:", 1)
	return strings.Replace(s, "spec:\n", "spec:\n"+more, 1)
}

// memoryOfMachine is in Mi.
func memoryOfMachine(t *testing.T) int64 {
	t.Helper()
	node, err := node.DetectMachine("/", 1)
	if err != nil {
		t.Log(err)
	}
	return node.Capacity.Memory().Value() >> 20
}

// oomKills counts those of all pods' cgroups, for as long as they are there.
func oomKills(dirs []string) (n int) {
	for _, d := range dirs {
		_ = filepath.WalkDir(filepath.Join(d, "kubepods"), func(path string, e os.DirEntry, err error) error {
			if err == nil && (e.Name() == "memory.oom_control" || e.Name() == "memory.events") {
				n += oomKillsIn(path)
			}
			return nil // what vanishes meanwhile has been looked at or killed nothing
		})
	}
	return n
}

func oomKillsIn(file string) (n int) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var count int
		if _, err := fmt.Sscanf(line, "oom_kill %d", &count); err == nil {
			n += count
		}
	}
	return n
}

// A pod that takes ever more memory is evicted before the kernel has to kill
// anything, and the pod beside it stays.
func TestEvictsBeforeTheKernelKills(t *testing.T) {
	t.Parallel()
	containerdtest.Required(t)
	root, dirs := cgroupRoot(t)
	l := newLab(t)
	l.inCgroups(root)
	const forPods, threshold = 400, 150 // Mi
	l.reconfigure("memory: 64Mi}", fmt.Sprintf("memory: %dMi}", memoryOfMachine(t)-forPods))
	l.reconfigure("evictionHard: {}", fmt.Sprintf("evictionHard: {memory.available: %dMi}", threshold))
	l.write("bystander.yaml", wanting("bystander", "requests: {memory: 100Mi}", "", "alloc, '60', sleep, forever"))
	l.start()
	before := l.untilReady("bystander")["bystander"]

	steps := make([]string, 0, 200)
	for range 200 {
		steps = append(steps, "alloc, '4', sleep, 300ms")
	}
	began := time.Now()
	l.write("hog.yaml", wanting("hog", "requests: {memory: 10Mi}", "", strings.Join(steps, ", ")))
	most, low := int64(0), time.Time{}
	pods := l.until("evicted: hog", func(pods map[string]*v1.Pod) bool {
		used, err := cgroupFile(dirs, "", "memory", "memory.usage_in_bytes", "memory.current")
		var n int64
		if _, serr := fmt.Sscan(used, &n); err == nil && serr == nil {
			most = max(most, n)
			if n > (forPods-threshold)<<20 && low.IsZero() {
				low = time.Now()
			}
		}
		p := pods["hog"]
		if p != nil && slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.RestartCount > 0 }) {
			t.Fatalf("the hog was killed and started again: %s", brief(pods)["hog"])
		}
		return p != nil && p.Status.Phase == v1.PodFailed && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running == nil
	})
	t.Logf("evicted %v after its manifest was written and %v after usage passed the threshold; pods used at most %d Mi of %d Mi",
		time.Since(began).Round(time.Millisecond), time.Since(low).Round(time.Millisecond), most>>20, forPods)
	hog := pods["hog"]
	if hog.Status.Reason != "Evicted" || !strings.HasPrefix(hog.Status.Message, "The node was low on resource: memory. Threshold quantity: 150Mi, available: ") ||
		!strings.Contains(hog.Status.Message, "Container c was using ") {
		t.Errorf("the hog's status: %s %q", hog.Status.Reason, hog.Status.Message)
	}
	if !slices.ContainsFunc(hog.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	}) {
		t.Errorf("the hog's conditions: %+v", hog.Status.Conditions)
	}
	after := l.untilReady("bystander")["bystander"]
	if containerID(after, "c") != containerID(before, "c") {
		t.Error("the bystander was started again")
	}
	if n := oomKills(dirs); n > 0 {
		t.Errorf("the kernel killed %d processes", n)
	}
	why := l.ask("why", "node")
	t.Logf("agent why node:\n%s", why)
	for _, want := range []string{"MemoryPressure: True", "allocatableMemory.available", "default/hog-lab (priority 0) uses ", ": chosen", "default/hog-lab was given 1s, and ", "EvictionThresholdMet"} {
		if !strings.Contains(why, want) {
			t.Errorf("agent why node does not tell %q", want)
		}
	}
	if got := l.ask("describe", "pod", "hog"); !strings.Contains(got, "Evicted") {
		t.Errorf("no event:\n%s", got)
	}
	top := l.ask("top", "pods")
	t.Logf("agent top pods:\n%s", top)
	if !strings.Contains(top, "bystander-lab") {
		t.Error("agent top pods does not tell of the bystander")
	}

	// What requests nothing waits while the node is under pressure.
	l.write("late.yaml", box("late", "sleep, forever"))
	l.write("small.yaml", wanting("small", "requests: {memory: 10Mi}", "", "sleep, forever"))
	pods = l.untilReady("small")
	if late := pods["late"]; late != nil && late.Status.Phase != v1.PodPending {
		t.Errorf("a pod without requests is %s", late.Status.Phase)
	}
	// An evicted pod stays so over a restart of the agent.
	l.kill()
	l.start()
	l.until("known to be evicted", func(pods map[string]*v1.Pod) bool {
		return pods["hog"] != nil && pods["hog"].Status.Reason == "Evicted"
	})
}

// A container that the kernel kills for its limit is told with its pod's name.
func TestOOMKillIsTold(t *testing.T) {
	t.Parallel()
	containerdtest.Required(t)
	root, _ := cgroupRoot(t)
	l := newLab(t)
	l.inCgroups(root)
	l.write("fat.yaml", wanting("fat", "limits: {memory: 32Mi}", "  restartPolicy: Never\n", "alloc, '100', sleep, forever"))
	l.start()
	pod := l.until("killed", func(pods map[string]*v1.Pod) bool {
		return pods["fat"] != nil && pods["fat"].Status.Phase == v1.PodFailed
	})["fat"]
	want := regexp.MustCompile(`in container c of pod fat-lab was killed by the kernel: a memory limit was reached \(the container's is 32Mi\)(; the process had [0-9]+Mi)?$`)
	l.until("told", func(map[string]*v1.Pod) bool {
		evs, err := l.api.Events(l.t.Context(), pod.Namespace, pod.Name)
		return err == nil && slices.ContainsFunc(evs.Items, func(e v1.Event) bool {
			if e.Reason != "OOMKilling" {
				return false
			}
			if !want.MatchString(e.Message) {
				t.Errorf("the event says %q", e.Message)
			}
			return true
		})
	})
	t.Logf("agent describe pod fat:\n%s", tail(l.ask("describe", "pod", "fat"), 8))
}
