package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
)

// licence is a part that has every pod wait, and knows why.
type licence struct{}

func (licence) Name() string { return "licence" }

func (licence) Prepare(context.Context, *v1.Pod, *observed.Pod) error { return errors.New("no answer") }

func (licence) Explain(*v1.Pod) string { return "a seat of 3, which others have" }

func (licence) ExplainNode(why *local.NodeWhy) { why.Network = "licence was here" }

func TestWhyTellsWhatPartsKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		n.Config.Parts = []part.Part{licence{}}
		a := n.Start()
		pod := agenttest.Pod("press", agenttest.Container("c"))
		n.Want(pod)
		time.Sleep(20 * time.Second)
		why := a.Why(a.Pods()[0]).WaitingFor
		for _, want := range []string{"a seat of 3, which others have; ", "no answer"} {
			if !strings.Contains(why, want) {
				t.Errorf("%q does not say %q", why, want)
			}
		}
		if node := a.WhyNode(); node.Name != "node" || node.Network != "licence was here" || len(node.Parts) != 1 {
			t.Errorf("node: %+v", node)
		}
	})
}
