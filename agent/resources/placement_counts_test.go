package resources_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/topology"
)

// A pod with resources of its own has them as a whole in the scope of pods: each of its
// containers is an allocation, and one without requests shares. In the scope of containers
// only those with requests count, of the node (KEP-5526; test/e2e_node expects the same).
func TestCountsOfPodsWithResourcesOfTheirOwn(t *testing.T) {
	for _, tc := range []struct {
		scope topology.Scope
		want  map[string]float64
	}{
		{topology.PodScope, map[string]float64{
			"cpu pod": 2, "cpu pod_exclusive": 1, "cpu pod_shared": 1, "memory pod": 2, "memory pod_exclusive": 1, "memory pod_shared": 1,
		}},
		{topology.ContainerScope, map[string]float64{"cpu node": 1, "cpu node_exclusive": 1, "memory node": 1, "memory node_exclusive": 1}},
	} {
		t.Run(string(tc.scope), func(t *testing.T) {
			n := newNode(t)
			n.fit.MemoryPolicy, n.fit.ReservedMemory = memmgr.StaticName, memmgr.Reserved{0: {memmgr.Memory: 512 << 20}}
			n.fit.TopologyPolicy, n.fit.TopologyScope, n.fit.PodLevel = topology.NameRestricted, tc.scope, true
			reg := prometheus.NewRegistry()
			n.metrics = reg
			n.start()
			p := newPlacementPod("a", sized("own", "1", "64Mi"), v1.Container{Name: "rest", Image: image})
			whole := sized("", "2", "128Mi").Resources
			p.Spec.Resources = &whole
			n.run(p)
			pod, bytes := n.p.CPUs().OfPod(p.UID).Len(), uint64(0)
			for _, b := range n.p.Memory().BlocksOfPod(p.UID) {
				bytes += b.Bytes
			}
			if whole := tc.scope == topology.PodScope; whole != (pod == 2) || whole != (bytes == 128<<20) {
				t.Errorf("the pod as a whole has %d CPUs and %d bytes", pod, bytes)
			}
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				switch f.GetName() {
				case "kubelet_resource_manager_allocations_total", "kubelet_resource_manager_container_assignments_total":
				default:
					continue
				}
				for _, m := range f.GetMetric() {
					key := ""
					for _, l := range m.GetLabel() {
						if l.GetName() == "resource_name" {
							key = l.GetValue() + key
						} else {
							key += " " + l.GetValue()
						}
					}
					got[key] = m.GetCounter().GetValue()
				}
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("counted %v, want %v", got, tc.want)
			}
		})
	}
}
