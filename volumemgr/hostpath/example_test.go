package hostpath_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr/hostpath"
)

func ExampleCheck() {
	fmt.Println(hostpath.CheckPath("/var/../etc"))
	fmt.Println(hostpath.Check("/dev/null", v1.HostPathCharDev))
	fmt.Println(hostpath.Check("/dev/null", v1.HostPathDirectory))
	// Output:
	// hostPath.path "/var/../etc" contains the element ".."
	// <nil>
	// hostPath type check failed: /dev/null is not a directory
}
