package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
)

// A plugin is made once, is given what an earlier agent recorded, and runs.
func Example() {
	plugin, err := bridge.New(bridge.Config{
		StateDir: "/var/lib/agent/network/bridge",
		Subnet:   netip.MustParsePrefix("10.214.0.0/24"),
	})
	if err != nil {
		fmt.Println("this node cannot have the network:", err) // all of the reasons
		return
	}
	defer plugin.Close()
	ctx := context.Background()
	if err := plugin.Recovered(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = plugin.Run(running, func() { fmt.Println("status:", plugin.Status()) }) }()

	a := network.Attachment{
		ID: "0c1f", Namespace: "default", Name: "web",
		Ports: []network.Port{{Protocol: "tcp", HostPort: 8080, ContainerPort: 80}},
	}
	saved, err := plugin.Plan(ctx, a)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := plugin.SetUp(ctx, a, "/run/netns/pod-0c1f", saved, nil)
	if err != nil {
		err = errors.Join(err, plugin.TearDown(ctx, a, "/run/netns/pod-0c1f", saved, nil))
		fmt.Println(err)
		return
	}
	fmt.Println(result.IPs, result.Warnings)
	for _, sentence := range plugin.Advice() {
		fmt.Fprintln(os.Stderr, sentence)
	}
}
