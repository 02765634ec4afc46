package rmtree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/rmtree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	must(t, os.MkdirAll(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	tree := filepath.Join(dir, "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "a/file"), nil, 0o600))
	must(t, os.Symlink(outside, filepath.Join(tree, "a/link")))
	must(t, os.Symlink("nowhere", filepath.Join(tree, "dangling")))
	must(t, unix.Mkfifo(filepath.Join(tree, "fifo"), 0o600))

	must(t, rmtree.Remove(tree))
	if exists(tree) || !exists(filepath.Join(outside, "kept")) {
		t.Error("want the tree gone and what a link in it leads to kept")
	}
	must(t, rmtree.Remove(tree))
	must(t, rmtree.Remove(filepath.Join(tree, "missing/parent")))

	link := filepath.Join(dir, "link")
	must(t, os.Symlink(outside, link))
	must(t, rmtree.Remove(link))
	if exists(link) || !exists(filepath.Join(outside, "kept")) {
		t.Error("want the link itself gone, and nothing else")
	}
}

func TestRemoveDirsKeepsWhatIsNoDirectory(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.MkdirAll(filepath.Join(tree, "empty/empty"), 0o755))
	must(t, os.MkdirAll(filepath.Join(tree, "full"), 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "full/file"), []byte("data"), 0o600))

	if err := rmtree.RemoveDirs(tree); !errors.Is(err, rmtree.ErrNotEmpty) {
		t.Errorf("error = %v, want ErrNotEmpty", err)
	}
	if exists(filepath.Join(tree, "empty")) || !exists(filepath.Join(tree, "full/file")) {
		t.Error("want empty directories gone and the file kept")
	}
	must(t, os.Remove(filepath.Join(tree, "full/file")))
	must(t, rmtree.RemoveDirs(tree))
	if exists(tree) {
		t.Error("a tree of directories stayed")
	}
}

// Deeper than there are files to open.
func TestRemoveDeep(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(tree, 0o755))
	fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	name := strings.Repeat("d", 200)
	for range 1000 {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	must(t, rmtree.Remove(tree))
	if exists(tree) {
		t.Error("the tree stayed")
	}
}

// A bind mount of the same file system is what a comparison of device numbers
// does not see.
func TestRemoveStopsAtMountPoints(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	must(t, os.MkdirAll(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	tree := filepath.Join(dir, "tree")
	point := filepath.Join(tree, "a/point")
	must(t, os.MkdirAll(point, 0o755))
	must(t, os.WriteFile(filepath.Join(tree, "file"), nil, 0o600))
	if err := unix.Mount(outside, point, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("bind mount: %v (needs CAP_SYS_ADMIN)", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })

	for _, target := range []string{point, tree} {
		if err := rmtree.Remove(target); !errors.Is(err, rmtree.ErrMountPoint) {
			t.Errorf("Remove(%s) = %v, want ErrMountPoint", target, err)
		}
		if err := rmtree.RemoveDirs(target); !errors.Is(err, rmtree.ErrMountPoint) {
			t.Errorf("RemoveDirs(%s) = %v, want ErrMountPoint", target, err)
		}
		if !exists(filepath.Join(outside, "kept")) {
			t.Fatal("what is mounted was removed")
		}
	}
	if exists(filepath.Join(tree, "file")) {
		t.Error("what is beside the mount point stayed")
	}
}
