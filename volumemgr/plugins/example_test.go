package plugins_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr/plugins"
)

func ExampleCheckHostPath() {
	fmt.Println(plugins.CheckPath("/var/../etc"))
	fmt.Println(plugins.CheckHostPath("/dev/null", v1.HostPathCharDev))
	fmt.Println(plugins.CheckHostPath("/dev/null", v1.HostPathDirectory))
	// Output:
	// hostPath.path "/var/../etc" contains the element ".."
	// <nil>
	// hostPath type check failed: /dev/null is not a directory, it's a CharDevice
}
