package numa_test

import (
	"fmt"
	"os"

	"github.com/nodewright/nodewright/numa"
)

// This machine's CPUs and NUMA nodes.
func ExampleReadSysfs() {
	m, err := numa.ReadSysfs(os.DirFS("/"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("some CPUs:", len(m.CPUs) > 0, "some NUMA nodes:", len(m.Nodes) > 0)
	// Output: some CPUs: true some NUMA nodes: true
}
