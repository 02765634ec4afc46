package cni

import (
	"fmt"
	"testing"

	"github.com/nodewright/nodewright/network/networktest"
)

func TestConformWithPublicPlugins(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two thousand programs; left out with -short")
	}
	dir := publicDir(t)
	if !inNamespaces(t) {
		return
	}
	r := publicRig(t, dir, oneConf("net", "1.0.0",
		`{"type":"bridge","bridge":"testbr0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/24"}]]}}`, `{"type":"portmap","capabilities":{"portMappings":true}}`))
	s := subject(r, "/var/lib/cni/networks/net")
	n := 0
	s.Timeout = slow
	s.Netns = func(t *testing.T) (path string, remove func()) {
		n++
		name := fmt.Sprint("conform", n)
		return namespace(t, name), func() { run(t, "ip", "netns", "del", name) }
	}
	networktest.Conform(t, s)
}
