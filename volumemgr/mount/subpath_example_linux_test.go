package mount_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func Example_subPath() {
	top, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(top) }()
	volume := filepath.Join(top, "volume")
	if err := errors.Join(os.Mkdir(volume, 0o755), os.Symlink("/etc", filepath.Join(volume, "sneaky"))); err != nil {
		panic(err)
	}

	// On a node the Mounter is a &mount.Kernel{}.
	b, err := mount.NewSubPathBinder(mount.SubPathConfig{Mounter: &plugintest.MountMemory{}})
	if err != nil {
		panic(err)
	}
	for _, sub := range []string{"tenants/a", "sneaky"} {
		path, err := b.Bind(context.Background(), mount.SubPathRequest{
			PodDir: filepath.Join(top, "pod"), Volume: "data", VolumePath: volume, Container: "web", SubPath: sub,
		})
		if err != nil {
			fmt.Println(err)
			continue
		}
		rel, err := filepath.Rel(top, path)
		fmt.Println(rel, err)
	}
	// Output:
	// pod/volume-subpaths/data/web/0 <nil>
	// subPath "sneaky" of volume "data": leads out of the volume
}
