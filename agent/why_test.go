package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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

// That a probe ended a container is known of the runtime's answer, and not read from an event.
func TestWhySaysThatAProbeEndedAContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := agenttest.New(t)
		a := n.Start()
		pod := agenttest.Pod("web", agenttest.Container("c"))
		pod.Spec.Containers[0].LivenessProbe = &v1.Probe{
			ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(1)}}, PeriodSeconds: 10, FailureThreshold: 1, TimeoutSeconds: 1,
		}
		n.Want(pod)
		for range 6 { // while it waits, and while it runs again
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if why := a.Why(a.Pods()[0]); !strings.Contains(why.Cause, "its liveness probe failed") {
				t.Errorf("%s: %q", a.Pods()[0].Status.ContainerStatuses[0].State.String(), why.Cause)
			}
		}
	})
}
