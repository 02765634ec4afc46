//go:build linux

// Package quotatest provides disks with project quotas for tests.
package quotatest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/loopdev"
)

// Disk mounts an ext4 file system of 256 MiB with project quotas until the end of the test, and
// returns the mount point. It skips the test if the mount is not possible: it needs root, loop
// devices, mkfs.ext4 and a kernel with CONFIG_QFMT_V2.
func Disk(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", "-b", "4096", "-O", "quota,project", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	device, err := loopdev.Attach(image, false)
	if err != nil {
		t.Skip("loop device: ", err)
	}
	t.Cleanup(func() {
		if err := loopdev.Free(device); err != nil {
			t.Error(err)
		}
	})
	// Processes of pods may run as any UID of the host, and need to reach the mount point.
	top := t.TempDir()
	dir := filepath.Join(top, "mnt")
	if err := errors.Join(os.Chmod(filepath.Dir(top), 0o711), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(device, dir, "ext4", 0, ""); err != nil {
		t.Skip("mount with project quotas: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
