package agenttest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
)

// goodbye is a part of one's own, which hears when nothing is left of a pod.
type goodbye struct{ heard chan string }

func (goodbye) Name() string { return "goodbye" }

// Gone implements part.Finisher.
func (g goodbye) Gone(_ context.Context, pod part.Ref) error {
	g.heard <- pod.Name
	return nil
}

// testGoodbye is a test of it in a whole agent.
func testGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := goodbye{make(chan string, 1)}
		n := agenttest.New(t)
		n.Config.Parts = []part.Part{g}
		n.Start()

		// Its container ends after 20 s, again and again.
		n.Want(agenttest.Pod("web", agenttest.Container("c", "sleep", "20s", "exit", "3")))
		n.Await("web", agenttest.Ready)
		n.Await("web", agenttest.Reason("CrashLoopBackOff"), agenttest.Restarts(1))

		n.Want()
		n.AwaitGone("web")
		if pod := <-g.heard; pod != "web" {
			t.Errorf("heard of %q, want web", pod)
		}
	})
}

func ExampleNode() {
	// In a file of tests it is func TestGoodbye.
	_ = testGoodbye
}
