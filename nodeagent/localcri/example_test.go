package localcri_test

import (
	"context"

	"github.com/nodewright/nodewright/kubeletconfig"
	nodewrightlocalcri "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localcri"
)

// A node that runs containers itself: no containerd, only runc or crun.
func ExampleRuntime() {
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		panic(err)
	}
	n, err := nodeagent.New(context.Background(), nodeagent.Options{
		Config: conf, Parts: nodeagent.Standard(), Services: nodeagent.StandardServices(),
		LocalRuntime: localcri.Runtime(nodewrightlocalcri.InProcessConfig{}),
	})
	if err != nil {
		panic(err)
	}
	if err := n.Run(context.Background()); err != nil {
		panic(err)
	}
}
