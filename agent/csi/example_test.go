package csi_test

import (
	"fmt"

	"github.com/nodewright/nodewright/agent/csi"
	"github.com/nodewright/nodewright/agent/part"
	block "github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// An agent whose pods have volumes of CSI drivers: the part goes into agent.Config.Parts,
// its plugin into agent.Config.Volumes.Plugins, its registrar to a resources.Plugins.
func ExampleNew() {
	p, err := csi.New(csi.Config{CSI: block.Config{Root: "/var/lib/agent", NodeName: "edge-1", Mounter: &mount.Kernel{}}})
	if err != nil {
		panic(err)
	}
	parts, volumes := []part.Part{p}, []volumemgr.Plugin{p.Plugin()}
	fmt.Println(parts[0].Name(), volumes[0].Name())
	// Output: csi kubernetes.io/csi
}
