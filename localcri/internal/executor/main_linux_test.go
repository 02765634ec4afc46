package executor

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// The tests have mounts of their own, without what crun does not take: cgroups of
// v1 that have controllers of v2 beside them.
func TestMain(m *testing.M) {
	if os.Getenv("NODEWRIGHT_PRIVATE_MOUNTS") != "" {
		_ = unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH)
	}
	os.Exit(plugintest.MainWithMounts(m))
}
