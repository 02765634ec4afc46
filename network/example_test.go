package network_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// A pod gets a network and gives it back. The plugin and the namespaces are in
// memory here: network/cni and network/bridge have plugins, and the kernel has
// namespaces if Namespaces is left out.
func Example() {
	dir, err := os.MkdirTemp("", "network")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	n, err := network.New(network.Config{
		Plugins:    []network.Plugin{&networktest.Plugin{}},
		Namespaces: &networktest.Namespaces{},
		StateDir:   dir,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()

	pod := network.Attachment{ID: "0123456789abcdef0123456789abcdef", Namespace: "default", Name: "web", UID: "6f1c"}
	result, err := n.Attach(ctx, pod) // SetUpPod
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.IPs, "in", result.Netns)
	again, _ := n.Get(pod.ID) // GetPodNetworkStatus
	fmt.Println(again.IPs, n.List()[0].State)
	if err := n.Detach(ctx, pod.ID); err != nil { // TearDownPod
		log.Fatal(err)
	}
	fmt.Println(len(n.List()), "attachments")

	cancel()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output:
	// [10.0.0.1] in /run/netns/nodewright-0123456789abcdef0123456789abcdef
	// [10.0.0.1] attached
	// 0 attachments
}
