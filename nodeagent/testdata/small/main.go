// small is a node with one part, and without services.
package main

import (
	"context"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
)

func main() {
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		panic(err)
	}
	n, err := nodeagent.New(context.Background(), nodeagent.Options{Config: conf, Parts: []nodeagent.Maker{nodeagent.Stats}})
	if err != nil {
		panic(err)
	}
	panic(n.Run(context.Background()))
}
