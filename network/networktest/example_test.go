package networktest_test

import (
	"fmt"
	"os"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// Pods have addresses in memory: nothing of the machine is changed, and no root is needed.
func ExamplePlugin() {
	dir, err := os.MkdirTemp("", "network")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	plugin := &networktest.Plugin{}
	n, err := network.New(network.Config{Plugins: []network.Plugin{plugin}, Namespaces: &networktest.Namespaces{}, StateDir: dir})
	if err != nil {
		panic(err)
	}

	fmt.Println(n != nil, len(plugin.Kept()))
	// Output: true 0
}
