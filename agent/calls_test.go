package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/agent/agenttest"
)

// What was just made is asked for by its ID: lists are for what nobody expected.
// Exact counts are in package cri, since a bubble's clock, which stands still between
// a sync and the look after it, makes looks too old that are not.
func TestStartAsksForNoLists(t *testing.T) {
	lists := []string{"ListPodSandbox", "ListContainers"}
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		n.Start()
		time.Sleep(11 * time.Minute) // until lists of all pods are rare
		n.Runtime.ForgetCalls()
		n.Want(agenttest.Pod("a", agenttest.Container("a")), agenttest.Pod("b", agenttest.Container("a"), agenttest.Container("b")))
		running := n.Await("a", agenttest.Ready)
		n.Await("b", agenttest.Ready)
		time.Sleep(2 * time.Second)
		if got := n.Runtime.Calls(lists...); len(got) > 0 {
			t.Errorf("two pods that started were listed: %v", got)
		}
		// One that ends and begins again shows by its ID too.
		_, id, _ := strings.Cut(running.Status.ContainerStatuses[0].ContainerID, "://")
		n.Runtime.Kill(id)
		n.Await("a", agenttest.Ready, agenttest.Restarts(1))
		if got := n.Runtime.Calls(lists...); len(got) > 0 {
			t.Errorf("a pod that was restarted was listed: %v", got)
		}
		// The proof that a pod has ended is by lists.
		n.Want()
		n.AwaitGone("a")
		n.AwaitGone("b")
		if got := n.Runtime.Calls(lists...); len(got) < 8 {
			t.Errorf("two pods that ended were listed %d times; want twice at least, by both lists, each", len(got))
		}
	})
}
