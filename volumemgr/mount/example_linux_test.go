package mount_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func Example() {
	top, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(top) }()
	dir := filepath.Join(top, "scratch")
	if err := os.Mkdir(dir, 0o755); err != nil {
		panic(err)
	}

	ctx := context.Background()
	var m mount.Mounter = &plugintest.MountMemory{} // on a node: &mount.Kernel{}
	fmt.Println(m.Mount(ctx, mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: dir, Options: []string{"size=65536"}}))
	found, err := mount.Find(ctx, m, dir)
	fmt.Println(len(found), found[0].Type, err)
	fmt.Println(mount.Clean(ctx, m, dir, mount.Plain))
	_, err = os.Stat(dir)
	fmt.Println(os.IsNotExist(err))
	// Output:
	// <nil>
	// 1 tmpfs <nil>
	// <nil>
	// true
}
