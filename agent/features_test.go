package agent_test

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podmgr"
)

// A pod that needs a feature which the node does not declare is rejected; an update
// that needs one is told of, and made.
func TestUndeclaredFeatures(t *testing.T) {
	for _, declares := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.configure = func(c *agent.Config) {
				if c.Cluster.Features = []string{}; declares {
					c.Cluster.Features = []string{"InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits"}
				}
			}
			api := newAPISource()
			n.more = []podmgr.Source{api}
			l := n.start()
			defer l.stop()
			l.tell()
			restarts, web := newPod("restarts", runs("c")), newPod("web", runs("c"))
			never := v1.ContainerRestartPolicyNever
			restarts.Spec.Containers[0].RestartPolicy = &never
			restarts.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
			web.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}
			api.tell(restarts, web)
			settle()
			if p := l.pod("restarts"); declares && p.Status.Phase != v1.PodRunning || !declares && p.Status.Reason != "PodFeatureUnsupported" {
				t.Errorf("declared %v: the pod is %s, %s, %s", declares, p.Status.Phase, p.Status.Reason, p.Status.Message)
			}
			web.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m")}}
			api.tell(restarts, web)
			settle()
			if told := hasEvent(l, web, "FailedNodeDeclaredFeaturesCheck"); told == declares {
				t.Errorf("declared %v: the update has an event: %v", declares, told)
			}
			l.wantPhase("web", v1.PodRunning)
		})
	}
}
