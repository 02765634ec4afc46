package swap_test

import (
	"fmt"
	"testing/fstest"

	"github.com/nodewright/nodewright/agent/swap"
)

// A machine with swap is refused unless it may have some.
func ExampleNew() {
	files := fstest.MapFS{
		"proc/swaps":   {Data: []byte("Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 1048572 0 -2\n")},
		"proc/meminfo": {Data: []byte("MemTotal: 4046640 kB\nSwapTotal: 1048572 kB\n")},
	}
	_, err := swap.New(swap.Config{Files: files})
	fmt.Println(err != nil)
	p, err := swap.New(swap.Config{Files: files, Allowed: true})
	fmt.Println(p.Name(), err)
	// Output:
	// true
	// swap <nil>
}
