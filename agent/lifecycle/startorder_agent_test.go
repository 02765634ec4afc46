package lifecycle_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/part"
)

// ordered is a pod whose container runs.
func ordered(name, after, priority string) *v1.Pod {
	p := agenttest.Pod(name, agenttest.Container("c", "sleep", "forever"))
	p.Annotations = map[string]string{lifecycle.AnnotationAfter: after}
	if priority != "" {
		p.Annotations[lifecycle.AnnotationStartPriority] = priority
	}
	return p
}

func newAgent(t *testing.T, busy bool) *agenttest.Node {
	t.Helper()
	p, err := lifecycle.NewStartOrder(lifecycle.StartOrderConfig{Busy: func() (bool, string) { return busy, "in a test" }})
	if err != nil {
		t.Fatal(err)
	}
	n := agenttest.New(t)
	n.Config.Parts = []part.Part{p}
	return n
}

// In a whole agent: pods begin one after the other, and a restart of the agent
// leaves those that run alone, in whatever order they are found.
func TestOrderInAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newAgent(t, false)
		n.Start()
		slow := ordered("db", "", "")
		slow.Spec.Containers[0].ReadinessProbe = &v1.Probe{
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, InitialDelaySeconds: 20, PeriodSeconds: 1,
		}
		web := ordered("web", "db,nobody", "")
		n.Want(web, slow)
		n.Await("web", agenttest.Phase(v1.PodPending), agenttest.Reason(lifecycle.ReasonStartOrder))
		time.Sleep(15 * time.Second)
		if st := n.Pod("web").Status; len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].State.Running != nil {
			t.Error("web did not wait")
		}
		ready := n.Await("db", agenttest.Ready)
		running := n.Await("web", agenttest.Ready)
		if took := running.Status.StartTime.Sub(ready.Status.StartTime.Time); took < 19*time.Second || took > 22*time.Second {
			t.Errorf("web began %v after db, which was ready after 20s", took)
		}
		p, err := lifecycle.NewStartOrder(lifecycle.StartOrderConfig{})
		if err != nil {
			t.Fatal(err)
		}
		n.Config.Parts = []part.Part{p}
		n.Restart()
		n.Want(web, slow)
		n.Await("web", agenttest.Ready, agenttest.Restarts(0))
		n.Await("db", agenttest.Ready, agenttest.Restarts(0))
	})
}

// Twenty pods that come at once on a busy machine: the important ones begin first, and
// those that do not become ready hold up the others for a while only.
func TestImportantPodsBeginFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newAgent(t, true)
		n.Start()
		var pods []*v1.Pod
		for i := range 20 {
			p := ordered(fmt.Sprintf("p%02d", i), "", fmt.Sprint(i/15)) // p15 to p19 are important
			if i >= 15 {
				p.Spec.Containers[0].ReadinessProbe = &v1.Probe{
					ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, InitialDelaySeconds: int32(5 * (i - 14)), PeriodSeconds: 1,
				}
			}
			pods = append(pods, p)
		}
		late := ordered("p20", "", "1")
		late.Spec.Containers[0].ReadinessProbe = &v1.Probe{
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, InitialDelaySeconds: 3600,
		}
		n.Want(append(pods, late)...)
		time.Sleep(20 * time.Second)
		for i, p := range append(pods, late) {
			st := n.Pod(p.Name).Status
			if runs := len(st.ContainerStatuses) > 0 && st.ContainerStatuses[0].State.Running != nil; runs != (i >= 15) {
				t.Errorf("after 20s %s runs: %v; %s", p.Name, runs, st.Message)
			}
		}
		time.Sleep(15 * time.Second)
		for _, p := range pods {
			n.Await(p.Name, agenttest.Ready)
		}
	})
}
