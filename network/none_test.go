package network_test

import (
	"testing"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// A pod without a network has a namespace, also for the next agent, and no address.
func TestNone(t *testing.T) {
	dir, spaces := t.TempDir(), &networktest.Namespaces{}
	for first := range 2 {
		n, err := network.New(network.Config{Plugins: []network.Plugin{network.None()}, StateDir: dir, NetnsDir: "/netns", BootID: "boot", Namespaces: spaces})
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, n.Run)
		r, err := n.Attach(t.Context(), network.Attachment{ID: "a", Ports: []network.Port{{Protocol: "tcp", HostPort: 80, ContainerPort: 80}}})
		if err != nil || len(r.IPs) != 0 || r.Netns == "" || len(r.Warnings) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if got, ok := n.Get("a"); !ok || got.Netns != r.Netns {
			t.Errorf("%+v, %t", got, ok)
		}
		if first == 1 {
			if err := n.Detach(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}
		stop()
	}
}
