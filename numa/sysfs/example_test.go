package sysfs_test

import (
	"fmt"
	"os"

	"github.com/nodewright/nodewright/numa/sysfs"
)

// This machine's CPUs and NUMA nodes.
func ExampleRead() {
	m, err := sysfs.Read(os.DirFS("/"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("some CPUs:", len(m.CPUs) > 0, "some NUMA nodes:", len(m.Nodes) > 0)
	// Output: some CPUs: true some NUMA nodes: true
}
