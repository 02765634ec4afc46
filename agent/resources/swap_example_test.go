package resources_test

import (
	"fmt"
	"testing/fstest"

	"github.com/nodewright/nodewright/agent/resources"
)

// A machine with swap is refused unless it may have some.
func ExampleNewSwap() {
	files := fstest.MapFS{
		"proc/swaps":   {Data: []byte("Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1048572 0 -2\n")},
		"proc/meminfo": {Data: []byte("MemTotal: 4046640 kB\nSwapTotal: 1048572 kB\n")},
	}
	_, err := resources.NewSwap(resources.SwapConfig{Files: files})
	fmt.Println(err != nil)
	p, err := resources.NewSwap(resources.SwapConfig{Files: files, Allowed: true})
	fmt.Println(p.Name(), err)
	// Output:
	// true
	// swap <nil>
}
