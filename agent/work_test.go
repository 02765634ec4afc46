package agent_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
)

// The agent says how many pods start, how many may and how many wait.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		n.Config.Pods.StartsInFlight = 2
		a := n.Start()
		release := n.Runtime.Hang("RunPodSandbox")
		var pods []*v1.Pod
		for i := range 5 {
			pods = append(pods, agenttest.Pod(fmt.Sprintf("p%d", i), agenttest.Container("c")))
		}
		n.Want(pods...)
		time.Sleep(time.Second)
		starts := func() string {
			w := a.WhyNode().Work[0]
			return fmt.Sprintf("%s: %d of %d, %d wait", w.Kind, w.Running, w.Limit, w.Waiting)
		}
		if got, want := starts(), "starts: 2 of 2, 3 wait"; got != want {
			t.Errorf("while nothing starts %q, want %q", got, want)
		}
		release()
		for _, p := range pods {
			n.Await(p.Name, agenttest.Ready)
		}
		if got, want := starts(), "starts: 0 of 2, 0 wait"; got != want {
			t.Errorf("when all run %q, want %q", got, want)
		}
	})
}
