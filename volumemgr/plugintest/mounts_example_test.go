package plugintest_test

import (
	"context"
	"fmt"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// A mount table without a kernel, whose second call fails.
func ExampleMountMemory() {
	ctx := context.Background()
	m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(2, false)}
	fmt.Println(m.Mount(ctx, mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: "/"}))
	fmt.Println(m.Mount(ctx, mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: "/"}))
	table, err := m.Table(ctx)
	fmt.Println(len(table), err)
	// Output:
	// <nil>
	// mount: injected fault
	// 1 <nil>
}
