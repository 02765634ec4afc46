package localcri_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent/localcri"
)

// Everything goes, and nothing is removed through a mount.
func TestResetAll(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	root, host := t.TempDir(), t.TempDir()
	precious := filepath.Join(host, "precious")
	secret := filepath.Join(root, "pods", "u", "volumes", "kubernetes.io~secret", "s")
	volume := filepath.Join(root, "pods", "u", "volumes", "kubernetes.io~local-volume", "v")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(precious, []byte("x"), 0o600))
	must(os.MkdirAll(secret, 0o755))
	must(os.MkdirAll(volume, 0o755))
	must(os.WriteFile(filepath.Join(root, "secret.key"), nil, 0o600))
	must(unix.Mount("tmpfs", secret, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(secret, unix.MNT_DETACH) })
	must(unix.Mount(host, volume, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
	inUse, err := os.Create(filepath.Join(secret, "token"))
	must(err)
	t.Cleanup(func() { _ = inUse.Close() })

	if err := localcri.Reset(t.Context(), localcri.ResetOptions{RootDir: root, All: true}, runtime.InProcessConfig{}); err != nil {
		t.Error(err)
	}
	var open unix.Stat_t
	if must(unix.Fstat(int(inUse.Fd()), &open)); open.Nlink != 1 {
		t.Error("a file of a volume in use was removed through its mount")
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("the host's file is gone: %v", err)
	}
}
