package agent_test

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/podmgr"
)

// A volume that is for nodes with a label is for this one as soon as it has the label,
// however the agent was started.
func TestVolumesAreForTheNodeOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		disk := t.TempDir()
		labels := map[string]string{"rack": "old"}
		n.configure = func(c *agent.Config) {
			c.Node.Labels = map[string]string{"rack": "old"}
			c.Cluster.NodeLabels = func() map[string]string { return labels }
		}
		labels = map[string]string{"rack": "new"}
		l := n.start()
		defer l.stop()
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: disk}},
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: "default", Name: "data"},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpIn, Values: []string{"new"}}},
			}}}},
		}}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "disk"}}
		pod := newPod("web", runs("c"))
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
		pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		l.src.snapshots <- podmgr.Snapshot{Pods: []*v1.Pod{pod}, Claims: []*v1.PersistentVolumeClaim{claim}, Volumes: []*v1.PersistentVolume{pv}}
		settle()
		l.wantPhase("web", v1.PodRunning)
	})
}
