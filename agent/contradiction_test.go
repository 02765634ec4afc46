package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/critest"
)

func containers(_ string, sandbox bool) bool { return !sandbox }
func sandboxes(_ string, sandbox bool) bool  { return sandbox }

// runningID is the container's that was started last.
func (n *node) runningID() string {
	calls := n.rt.Calls("StartContainer")
	return calls[len(calls)-1].Target
}

// stopSandboxes ends every sandbox, as a crash of what holds them does.
func (n *node) stopSandboxes() {
	list, _ := n.rt.ListPodSandbox(context.Background(), nil)
	for _, s := range list {
		_ = n.rt.StopPodSandbox(context.Background(), s.GetId())
	}
}

// A clock set back between two instances makes no third one.
func TestClockSetBackAndACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		n.rt.SetClock(-time.Hour)
		n.rt.Kill(n.id("c"))
		for range 30 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if _, running := n.containers(); running["p/c"] > 1 {
				t.Fatalf("%d instances run at once", running["p/c"])
			}
		}
		if _, running := n.containers(); running["p/c"] != 1 {
			t.Errorf("%d instances run, want 1", running["p/c"])
		}
		if st := l.pod("p").Status.ContainerStatuses[0]; st.RestartCount != 1 || st.State.Running == nil {
			t.Errorf("status %+v", st)
		}
		l.stop()
	})
}

// What runs twice is told of, and ends.
func TestSurplusInstancesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		l.stop()
		first := n.id("c")
		n.rt.Hide(func(id string, _ bool) bool { return id == first })
		l = n.start()
		settle()
		n.rt.Hide(nil)
		n.rt.Pretend("StopContainer")
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, running := n.containers(); running["p/c"] != 2 {
			t.Fatalf("%d instances run, want 2", running["p/c"])
		}
		if why := l.why("p"); !strings.Contains(why, "surplus instances: container c (1)") {
			t.Errorf("why: %q", why)
		}
		n.rt.Pretend()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, running := n.containers(); running["p/c"] != 1 {
			t.Errorf("%d instances run, want 1", running["p/c"])
		}
		if st, err := n.rt.ContainerStatus(context.Background(), first, false); err == nil && st.GetStatus().GetFinishedAt() == 0 {
			t.Error("the older instance stayed")
		}
		if why := l.why("p"); why != "" {
			t.Errorf("why: %q", why)
		}
		l.stop()
	})
}

// Whatever a runtime answers and shows, it is asked with pauses, and no copies
// pile up. In five minutes a failure that is always there is tried about ten
// times.
func TestContradictionsAreAskedWithPauses(t *testing.T) {
	later := func(n *node) { settle(); n.rt.Kill(n.id("c")) } // when all is well
	for _, tc := range []struct {
		name   string
		before func(*node) // before the agent begins
		after  func(*node) // when the pod runs, or would
		pod    *v1.Pod
	}{
		{name: "sandboxes are not made", before: func(n *node) { n.rt.Pretend("RunPodSandbox") }},
		{name: "containers are not made", before: func(n *node) { n.rt.Pretend("CreateContainer", "StartContainer") }},
		{name: "containers are not started", before: func(n *node) { n.rt.Pretend("StartContainer") }},
		{name: "nothing is made, removed or ended", before: func(n *node) {
			n.rt.Pretend("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox")
		}},
		{name: "lists of before", before: func(n *node) { n.rt.Freeze(true) }},
		{name: "lists of before a restart", after: func(n *node) { n.rt.Freeze(true); later(n) }},
		{name: "lists of after a restart", after: func(n *node) { later(n); settle(); n.rt.Freeze(true); n.rt.Kill(n.runningID()) }},
		{name: "containers are not listed", before: func(n *node) { n.rt.Hide(containers) }},
		{name: "containers are not listed any more", after: func(n *node) { n.rt.Hide(containers); n.rt.Kill(n.runningID()) }},
		{name: "sandboxes are not listed", before: func(n *node) { n.rt.Hide(sandboxes) }},
		{name: "nothing is listed", before: func(n *node) { n.rt.Hide(func(string, bool) bool { return true }) }},
		{name: "every second look shows nothing", after: func(n *node) {
			var looks atomic.Int64 // each begins with the list of sandboxes
			n.rt.Around(func(c critest.Call) error {
				if c.Method == "ListPodSandbox" {
					looks.Add(1)
				}
				return nil
			}, nil)
			n.rt.Hide(func(string, bool) bool { return looks.Load()%2 == 0 })
			n.rt.Kill(n.runningID())
		}},
		{name: "sandboxes die at once", before: func(n *node) {
			n.rt.Around(nil, func(c critest.Call) error {
				if c.Method == "CreateContainer" {
					go n.stopSandboxes()
				}
				return nil
			})
		}},
		{name: "what is stopped runs on", after: func(n *node) {
			n.rt.Pretend("StopContainer", "StopPodSandbox")
			n.want[0].Spec.Containers[0].Image = "localhost/app:2" // has it replaced
		}},
		{name: "what is removed stays", after: func(n *node) {
			n.rt.Pretend("RemoveContainer", "RemovePodSandbox")
			n.want = nil
		}},
		{name: "what is stopped and removed runs on", after: func(n *node) {
			n.rt.Pretend("StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox")
			n.want = nil
		}},
		{name: "a pod without containers", pod: newPod("p")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.rt.AddImage("localhost/app:2")
				n.want = []*v1.Pod{newPod("p", runs("c"))}
				if tc.pod != nil {
					n.want = []*v1.Pod{tc.pod}
				}
				if tc.before != nil {
					tc.before(n)
				}
				l := n.start()
				settle()
				if tc.after != nil {
					tc.after(n)
					l.tell()
				}
				n.rt.ForgetCalls()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				counts := map[string]int{}
				for _, c := range n.rt.Calls() {
					counts[c.Method]++
				}
				for method, most := range map[string]int{
					"RunPodSandbox": 20, "CreateContainer": 20, "StartContainer": 20, "StopContainer": 40, "RemoveContainer": 40,
					"StopPodSandbox": 40, "RemovePodSandbox": 40, "ListContainers": 700, "ListPodSandbox": 700,
					"PodSandboxStatus": 500, "ContainerStatus": 500,
				} {
					if counts[method] > most {
						t.Errorf("%d calls of %s in five minutes, want at most %d: %v", counts[method], method, most, counts)
					}
				}
				n.rt.Hide(nil)
				n.rt.Freeze(false)
				if all, running := n.containers(); all["p/c"] > 4 || running["p/c"] > 2 {
					t.Errorf("%d instances, of which %d run", all["p/c"], running["p/c"])
				}
				n.rt.Pretend()
				n.rt.Around(nil, nil)
				if tc.pod == nil {
					time.Sleep(6 * time.Minute) // the longest between two lists, and more
					synctest.Wait()
					want := len(n.want)
					if _, running := n.containers(); running["p/c"] != want {
						t.Errorf("%d instances run once the runtime says what is, want %d", running["p/c"], want)
					}
				}
				l.stop()
			})
		})
	}
}
