package csi_test

import (
	"context"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/csi"
)

// A whole node whose pods may have volumes of CSI drivers.
func ExampleVolumes() {
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		panic(err)
	}
	n, err := nodeagent.New(context.Background(), nodeagent.Options{
		Config: conf, Parts: append([]nodeagent.Maker{csi.Volumes}, nodeagent.Standard()...), Services: nodeagent.StandardServices(),
	})
	if err != nil {
		panic(err)
	}
	if err := n.Run(context.Background()); err != nil {
		panic(err)
	}
}
