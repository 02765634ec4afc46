package agent_test

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podmgr"
)

// An object that goes together with the pod that refers to it is no event of the pod;
// one that goes alone is.
func TestConfigThatGoesWithItsPod(t *testing.T) {
	for _, goes := range []string{"alone", "with the pod", "with the end of the pod"} {
		alone := goes == "alone"
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			rec := &recorder{}
			n.configure = func(c *agent.Config) { c.Events = rec }
			l := n.start()
			defer l.stop()
			p := newPod("p", runs("c"))
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}},
			}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
			conf := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "conf"}, Data: map[string]string{"a": "b"}}
			l.src.snapshots <- podmgr.Snapshot{Pods: []*v1.Pod{p.DeepCopy()}, ConfigMaps: []*v1.ConfigMap{conf}}
			settle()
			if n.id("c") == "" || rec.has("p FailedMount") {
				t.Fatalf("the pod does not run: %q", rec.all())
			}
			last := podmgr.Snapshot{}
			if goes != "with the pod" {
				last.Pods = []*v1.Pod{p.DeepCopy()}
			}
			for _, left := range last.Pods {
				if !alone {
					left.Status.Phase = v1.PodFailed
				}
			}
			l.src.snapshots <- last
			settle()
			if got := rec.has("p FailedMount"); got != alone {
				t.Errorf("%s: a mount that failed is told: %v; %q", goes, got, rec.all())
			}
		})
	}
}
