package agenttest_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
)

func TestGoodbye(t *testing.T) { testGoodbye(t) }

// A machine outlives its agents.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		n.Start()
		n.Want(agenttest.Pod("a", agenttest.Container("c")))
		id := n.Await("a", agenttest.Ready).Status.ContainerStatuses[0].ContainerID
		n.Restart()
		if got := n.Await("a", agenttest.Ready, agenttest.Restarts(0)).Status.ContainerStatuses[0].ContainerID; got != id {
			t.Errorf("after a restart of the agent container %s runs, want %s", got, id)
		}
	})
}

// By the machine's clock it is the same.
func TestWithoutBubble(t *testing.T) {
	n := agenttest.New(t)
	n.Start()
	pod := agenttest.Pod("a", agenttest.Container("c", "exit", "0"))
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	n.Want(pod)
	n.Await("default/a", agenttest.Phase(v1.PodSucceeded))
}

// What the sink refuses comes again.
func TestSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		n.Sink.Fail(errors.New("the network is down"))
		n.Start()
		n.Want(agenttest.Pod("a", agenttest.Container("c")))
		n.Await("a", agenttest.Ready)
		if r := n.Sink.Reports(); len(r) > 0 {
			t.Errorf("reports %+v of a sink that fails", r)
		}
		n.Sink.Fail(nil)
		time.Sleep(time.Minute)
		r := n.Sink.Reports()
		if len(r) == 0 || r[len(r)-1].Pod != "default/a" || r[len(r)-1].Status.Phase != v1.PodRunning {
			t.Errorf("reports %+v, want one of a pod that runs", r)
		}
	})
}

// failure is a test that keeps why it failed.
type failure struct {
	testing.TB
	said string
}

func (f *failure) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *failure) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// A condition that does not come says what the agent knows.
func TestFailures(t *testing.T) {
	fails := func(do func(n *agenttest.Node), wants ...string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			f := &failure{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				do(agenttest.New(f))
			}()
			<-done
			for _, want := range wants {
				if !strings.Contains(f.said, want) {
					t.Errorf("the failure says %q, want %q in it", f.said, want)
				}
			}
		})
	}
	fails(func(n *agenttest.Node) {
		n.Start()
		pod := agenttest.Pod("a", agenttest.Container("c"))
		pod.Spec.Containers[0].Image = "localhost/missing:1"
		n.Want(pod)
		n.Await("a", agenttest.Ready)
	}, "pod a, after 1m0s: the pod is Pending and not ready", "default/a does not run: image localhost/missing:1 from localhost cannot be pulled: ", "next pull", "event: Warning Failed")
	fails(func(n *agenttest.Node) {
		n.Start()
		n.Want(agenttest.Pod("a", agenttest.Container("c", "sleep", "5s", "exit", "1")))
		n.Await("a", agenttest.Phase(v1.PodFailed))
	}, "the pod is Running; want Failed")
	fails(func(n *agenttest.Node) {
		n.Start()
		n.Want()
		n.Await("a")
	}, "there is no such pod")
	fails(func(n *agenttest.Node) {
		n.Start()
		n.Want(agenttest.Pod("a", agenttest.Container("c")))
		n.Await("a", agenttest.Ready)
		n.AwaitGone("a")
	}, "the pod still exists")
	fails(func(n *agenttest.Node) { n.Await("a") }, "no agent runs on this node")
	fails(func(n *agenttest.Node) { n.Start(); n.Start() }, "runs on this node already")
	fails(func(n *agenttest.Node) { n.Config.Node.Name = ""; n.Start() }, "agenttest: ", "Name")
}
