package cluster_test

import (
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent"
)

// The ranges of a Node that exists reach the runtime, and what localStorage and the
// cloud provider say reaches the Node.
func TestNodeOfACloud(t *testing.T) {
	for _, external := range []bool{false, true} {
		api := kubeapitest.New()
		srv := httptest.NewTLSServer(api)
		conf := configure(t.TempDir(), srv)
		conf.ExternalProvider, conf.LocalStorageCapacityIsolation = external, new(!external)
		node := func() *v1.Node {
			n, _ := api.Get(&v1.Node{}, "", "edge-7").(*v1.Node)
			return n
		}
		rt, given := critest.New(), false
		life(t, nodeagent.Options{Config: conf, Runtime: rt}, func() bool {
			n := node()
			if n == nil || len(n.Status.Conditions) == 0 {
				return false
			}
			if !given {
				given = true
				n.Spec.PodCIDRs = []string{"10.1.2.0/24", "fd00:1::/64"}
				api.Put(n)
			}
			return len(rt.Calls("UpdateRuntimeConfig")) > 0
		})
		if calls := rt.Calls("UpdateRuntimeConfig"); len(calls) != 1 || calls[0].Target != "10.1.2.0/24,fd00:1::/64" {
			t.Errorf("the runtime was told %v", calls)
		}
		n := node()
		tainted := false
		for _, taint := range n.Spec.Taints {
			tainted = tainted || taint.Key == "node.cloudprovider.kubernetes.io/uninitialized"
		}
		if tainted != external {
			t.Errorf("external %t: taints %v", external, n.Spec.Taints)
		}
		if _, has := n.Status.Capacity[v1.ResourceEphemeralStorage]; has == external {
			t.Errorf("external %t: capacity %v", external, n.Status.Capacity)
		}
		api.Stop()
		srv.Close()
	}
}
