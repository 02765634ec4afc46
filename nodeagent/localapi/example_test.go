package localapi_test

import (
	"context"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localapi"
)

// A node without a cluster, which kubectl reaches at port 6443.
func ExampleAttach() {
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		panic(err)
	}
	o := nodeagent.Options{Config: conf, Parts: nodeagent.Standard(), Services: nodeagent.StandardServices()}
	localapi.Attach(&o, localapi.Config{Address: "127.0.0.1:6443"})
	n, err := nodeagent.New(context.Background(), o)
	if err != nil {
		panic(err)
	}
	if err := n.Run(context.Background()); err != nil {
		panic(err)
	}
}
