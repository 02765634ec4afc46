package podsync_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// The roots of all bundles of a signer, each once.
func Example_refs() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := kubeapitest.New() // a rest.Config from a kubeconfig leads to a real one
	server.Create(ctb("example.com:ca:2025", "example.com/ca", "web", "old root"))
	server.Create(ctb("example.com:ca:2026", "example.com/ca", "web", "old root", "new root"))

	client, err := kubeapi.New(kubeapi.Config{REST: server.Config()})
	if err != nil {
		log.Fatal(err)
	}
	bundles, err := podsync.NewBundles(podsync.BundlesConfig{Client: client})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = bundles.Run(ctx) }()

	pem, err := bundles.Bundle(ctx, plugins.Bundle{
		Signer: "example.com/ca", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}},
	})
	fmt.Println(strings.Count(string(pem), "BEGIN CERTIFICATE"), err)
	// Output:
	// 2 <nil>
}
