package plugintest_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// Volumes of a node in memory, on which a manager and its plugins are tried.
func ExampleNew() {
	node := plugintest.New()
	plugin := &plugintest.Fake{Node: node}
	dir := &volumemgr.Volume{Path: "/pods/u-1/volumes/data", Spec: &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}}
	_, err := plugin.SetUp(context.Background(), dir)
	fmt.Println(err, plugin.Calls("setup"))
	// Output: <nil> 1
}
