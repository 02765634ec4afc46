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
	for _, alone := range []bool{false, true} {
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
			if alone {
				last.Pods = []*v1.Pod{p.DeepCopy()}
			}
			l.src.snapshots <- last
			settle()
			if got := rec.has("p FailedMount"); got != alone {
				t.Errorf("alone %v: a mount that failed is told: %v; %q", alone, got, rec.all())
			}
		})
	}
}
