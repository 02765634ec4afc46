package agent_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/statusmgr"
)

// What was published before a restart is known after it, and goes with the pod.
func TestStatusesOutliveTheAgent(t *testing.T) {
	for _, own := range []bool{false, true} { // a sink of one's own, or that of the agent
		t.Run(fmt.Sprint("own=", own), func(t *testing.T) { testStatusesOutliveTheAgent(t, own) })
	}
}

func testStatusesOutliveTheAgent(t *testing.T, own bool) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		memory, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: filepath.Join(n.root, "root", "status")})
		if err != nil {
			t.Fatal(err)
		}
		if own {
			n.sink = statusmgr.Remembering(&follower{}, memory)
		}
		job := newPod("job", runs("c", "exit", "3"))
		job.Spec.RestartPolicy = v1.RestartPolicyNever
		n.want = []*v1.Pod{job, newPod("web", runs("c"))}
		l := n.start()
		settle()
		before, ended := l.pod("web").Status.StartTime, l.pod("job").Status
		l.stop()

		// A clean-up of dead containers removes what the status was made of.
		id := podstatus.BareID(ended.ContainerStatuses[0].ContainerID)
		if err := n.rt.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		l = n.start()
		settle()
		if st := l.pod("job").Status; st.Phase != v1.PodFailed || st.ContainerStatuses[0].State.Terminated == nil || st.ContainerStatuses[0].State.Terminated.ExitCode != 3 {
			t.Errorf("the job is %s, its container %+v", st.Phase, st.ContainerStatuses[0].State)
		}
		if st := l.pod("web").Status; !st.StartTime.Equal(before) {
			t.Errorf("started at %v, and at %v after a restart of the agent", before, st.StartTime)
		}
		n.want = n.want[:1]
		l.tell()
		settle()
		settle()
		l.stop()
		left, err := memory.Load(t.Context())
		if err != nil || len(left) != 1 {
			t.Errorf("statuses %v, %v; want the job's alone", left, err)
		}
	})
}

// A pod that did not fit is looked at again by the next agent.
func TestRejectionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		sink, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: filepath.Join(n.root, "status")})
		if err != nil {
			t.Fatal(err)
		}
		n.sink, n.cpus = sink, "2"
		c := runs("c")
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
		n.want = []*v1.Pod{newPod("big", c)}
		l := n.start()
		settle()
		if st := l.pod("big").Status; st.Phase != v1.PodFailed || st.Reason != "OutOfcpu" {
			t.Fatalf("phase %s, reason %s", st.Phase, st.Reason)
		}
		l.stop()
		n.cpus = "4"
		l = n.start()
		settle()
		if st := l.pod("big").Status; st.Phase != v1.PodRunning || st.Reason != "" {
			t.Errorf("phase %s, reason %q on a larger node", st.Phase, st.Reason)
		}
		l.stop()
	})
}
