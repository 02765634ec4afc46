package bundle_test

import (
	"context"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/bundle"
)

// A node that runs what the tag prod has.
func ExampleAttach() {
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		panic(err)
	}
	o := nodeagent.Options{Config: conf, Parts: nodeagent.Standard(), Services: nodeagent.StandardServices()}
	bundle.Attach(&o, bundle.Config{Ref: "registry.example/fleet/shop:prod"})
	n, err := nodeagent.New(context.Background(), o)
	if err != nil {
		panic(err)
	}
	if err := n.Run(context.Background()); err != nil {
		panic(err)
	}
}
