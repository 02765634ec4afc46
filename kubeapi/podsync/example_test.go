package podsync_test

import (
	"context"
	"fmt"
	"log"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"

	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

// A pod comes from the API server with the ConfigMap that it refers to, and its
// status goes back there.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := kubeapitest.New() // a rest.Config from a kubeconfig leads to a real one
	client, err := kubeapi.New(kubeapi.Config{REST: server.Config()})
	if err != nil {
		log.Fatal(err)
	}
	source, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1"})
	if err != nil {
		log.Fatal(err)
	}
	sink, err := podsync.NewSink(podsync.SinkConfig{Client: client.Once(), Pods: source})
	if err != nil {
		log.Fatal(err)
	}
	pods, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{source}})
	if err != nil {
		log.Fatal(err)
	}
	statuses, err := statusmgr.New(statusmgr.Config{Sink: sink})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = pods.Run(ctx) }()
	go func() { _ = statuses.Run(ctx) }()

	server.Create(configMap("settings", "hello"))
	server.Create(pod("web", "configmap/settings"))
	for change := range pods.Changes() {
		switch {
		case change.Op == podmgr.Add && len(change.Pods) > 0: // the first may say that all is known
			fmt.Println(change.Op, change.Pods[0].Name, "with", pods.ConfigMaps("ns")["settings"].Data["k"])
			statuses.Set(change.Pods[0], v1.PodStatus{Phase: v1.PodRunning})
		case change.Op == podmgr.Reconcile:
			fmt.Println(change.Op, "as the server shows it", change.Pods[0].Status.Phase)
			return
		}
	}
	// Output:
	// ADD web with hello
	// RECONCILE as the server shows it Running
}
