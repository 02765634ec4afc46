package resources_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/pluginmgr"
)

func Example_plugins() {
	dir, err := os.MkdirTemp("", "plugins")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ready := make(chan struct{}) // resources.Devices.Ready(), for one
	p, err := resources.NewPlugins(resources.PluginsConfig{
		Dir: dir,
		Handlers: map[string][]pluginmgr.Handler{
			pluginmgr.CSIPlugin: {make(registered)},
		},
		After: []<-chan struct{}{ready},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	close(ready)
	fmt.Println(p.Name(), len(p.Plugins()))
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// plugins 0
	// ended: <nil>
}
