package agent_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sized is a running container that asks for that much, requests and limits.
func sized(name, cpu, memory string) v1.Container {
	c := runs(name)
	c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	c.Resources.Limits = c.Resources.Requests.DeepCopy()
	return c
}

// memory is the limit of a pod's container as the runtime has it, in MiB.
func (l *life) memory(pod string) int64 {
	l.n.t.Helper()
	st, err := l.n.rt.ContainerStatus(l.n.t.Context(), l.n.id(pod), false)
	if err != nil {
		l.n.t.Fatal(err)
	}
	return st.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes() >> 20
}

func (l *life) reasons(pod string) []string {
	var out []string
	for _, e := range l.Events(l.pod(pod)) {
		out = append(out, e.Reason)
	}
	return out
}

// edit changes what the node wants of a pod.
func (l *life) edit(pod, cpu, memory string) {
	for _, p := range l.n.want {
		if p.Name == pod {
			p.Spec.Containers[0].Resources = sized("c", cpu, memory).Resources
		}
	}
	l.tell()
	settle()
}

func (l *life) condition(pod string, t v1.PodConditionType) *v1.PodCondition {
	for _, c := range l.pod(pod).Status.Conditions {
		if c.Type == t {
			return &c
		}
	}
	return nil
}

func (l *life) granted(pod string) string {
	q := l.pod(pod).Status.ContainerStatuses[0].AllocatedResources[v1.ResourceMemory]
	return q.String()
}

func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.want = []*v1.Pod{newPod("a", sized("a", "500m", "1Gi")), newPod("b", sized("b", "500m", "1Gi"))}
		l := n.start()
		settle()
		id := n.id("a")

		l.edit("a", "1", "2Gi") // there is room
		if l.memory("a") != 2048 || l.granted("a") != "2Gi" || n.id("a") != id {
			t.Errorf("memory %d, granted %s, same container: %v", l.memory("a"), l.granted("a"), n.id("a") == id)
		}
		if got := l.reasons("a"); !slices.Contains(got, "ResizeStarted") || !slices.Contains(got, "ResizeCompleted") {
			t.Errorf("events %v", got)
		}
		if c := l.condition("a", v1.PodResizeInProgress); c != nil {
			t.Errorf("still in progress: %+v", c)
		}

		l.edit("b", "500m", "3Gi") // beside a, there is not
		c := l.condition("b", v1.PodResizePending)
		if c == nil || c.Reason != v1.PodReasonDeferred || !strings.Contains(c.Message, "memory") || l.memory("b") != 1024 || l.granted("b") != "1Gi" {
			t.Fatalf("pending %+v, memory %d, granted %s", c, l.memory("b"), l.granted("b"))
		}
		if why := l.Why(l.pod("b")).WaitingFor; !strings.Contains(why, "PodResizePending Deferred") {
			t.Errorf("why: %s", why)
		}

		l.edit("a", "1", "1Gi") // what a gives back, b gets
		time.Sleep(time.Second)
		settle()
		if l.condition("b", v1.PodResizePending) != nil || l.memory("b") != 3072 || l.memory("a") != 1024 {
			t.Errorf("b: pending %+v, memory %d; a: memory %d", l.condition("b", v1.PodResizePending), l.memory("b"), l.memory("a"))
		}

		l.edit("a", "1", "5Gi") // the node has not that much
		if c := l.condition("a", v1.PodResizePending); c == nil || c.Reason != v1.PodReasonInfeasible || l.memory("a") != 1024 {
			t.Errorf("pending %+v, memory %d", c, l.memory("a"))
		}
		l.edit("a", "1", "1Gi") // it is no longer asked
		if c := l.condition("a", v1.PodResizePending); c != nil {
			t.Errorf("pending %+v", c)
		}
		if all, _ := n.containers(); len(all) != 2 {
			t.Errorf("containers %v", all)
		}
		l.stop()
	})
}
