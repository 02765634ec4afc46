package kubeapi_test

import (
	"context"
	"fmt"
	"log"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/node/status"
)

// fine is a status.Manager of a machine that is well.
type fine struct{ changes chan struct{} }

func (f fine) Changes() <-chan struct{} { return f.changes }
func (fine) Reported()                  {}
func (fine) Fill(n *v1.Node) ([]status.Event, error) {
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return nil, nil
}

// A machine becomes a node of a cluster, and says that it lives.
func Example_node() {
	ctx, cancel := context.WithCancel(context.Background())
	server := kubeapitest.New() // a rest.Config from a kubeconfig leads to a real one
	api, err := kubeapi.HeartbeatClient(server.Config(), 0, nil)
	if err != nil {
		log.Fatal(err)
	}
	looked := make(chan struct{}, 1)
	looked <- struct{}{}
	reported := make(chan *v1.NodeStatus, 1)
	m, err := kubeapi.NewNodeManager(kubeapi.NodeConfig{
		Name: "edge-1", API: api, Status: fine{looked}, Register: true, Labels: map[string]string{"site": "north"},
		Reported: func(s *v1.NodeStatus) {
			select {
			case reported <- s:
			default:
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := kubeapi.NewLease(kubeapi.LeaseConfig{Name: "edge-1", API: api, Owner: m.UID})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() { _ = m.Run(ctx); ended <- struct{}{} }()
	<-reported
	go func() { _ = lease.Run(ctx); ended <- struct{}{} }()
	for server.Get(&coordinationv1.Lease{}, v1.NamespaceNodeLease, "edge-1") == nil {
		time.Sleep(time.Millisecond)
	}

	n := server.Get(&v1.Node{}, "", "edge-1").(*v1.Node)
	fmt.Println(n.Labels["site"], n.Status.Conditions[0].Type, n.Status.Conditions[0].Status)
	held := server.Get(&coordinationv1.Lease{}, v1.NamespaceNodeLease, "edge-1").(*coordinationv1.Lease)
	fmt.Println(*held.Spec.HolderIdentity, *held.Spec.LeaseDurationSeconds, held.OwnerReferences[0].Name)
	cancel()
	<-ended
	<-ended
	// Output:
	// north Ready True
	// edge-1 40 edge-1
}
