package volumemgr_test

import (
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// bigDisk makes a volume one of machines with more than that many disks.
func bigDisk(more string) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
			{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disks", Operator: v1.NodeSelectorOpGt, Values: []string{more}}}},
		}}}
	}
}

// A volume of another node is not touched; a mounted one stays when the node's labels change,
// also after a restart.
func TestAffinity(t *testing.T) {
	for name, kind := range map[string]func(*v1.PersistentVolume){"files": nil, "block": block} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disks := "4"
				here := func(c *volumemgr.Config) {
					c.Node = func() volumemgr.Here {
						return volumemgr.Here{Name: "n", Labels: map[string]string{"disks": disks}}
					}
				}
				make := func(name, more string) *v1.PersistentVolume {
					pv := localPV(name, kind)
					bigDisk(more)(pv)
					return pv
				}
				pod := newPod("u1", claim("x", "data"), claim("y", "other"))
				if kind != nil {
					pod = mapped(pod)
				}
				node := plugintest.New()
				r := start(t, node, here)
				r.claims["data"], r.claims["other"] = make("pv", "3"), make("far", "4")
				ms, err := r.Mount(t.Context(), pod)
				if err == nil || !strings.Contains(err.Error(), `persistent volume "far" is not for this node`) || len(ms) != 1 {
					t.Errorf("%v, %v", ms, err)
				}
				disks = "1"
				pod.Spec.Volumes = pod.Spec.Volumes[:1]
				r.mount(pod)
				r.stop()
				r = start(t, node, here)
				r.claims["data"] = make("pv", "3")
				r.mount(pod)
				r.unmount("u1")
			})
		})
	}
}
