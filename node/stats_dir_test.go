package node

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func TestDir(t *testing.T) {
	root := t.TempDir()
	for name, size := range map[string]int{"empty": 0, "small": 10, "exact": 1024, "large": 100_000} {
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(filepath.Join(root, name), want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := fs.ReadFile(CgroupFS(root), name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := fs.ReadFile(CgroupFS(root), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, name := range []string{"/etc/passwd", "../x", ""} {
		if _, err := fs.ReadFile(CgroupFS(root), name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := fs.ReadFile(CgroupFS(root), "."); err == nil {
		t.Error("a directory can be read as a file")
	}
}

// A log is as large as what it takes of the disk, as with du: more than its bytes, or less where it has holes.
func TestOnDisk(t *testing.T) {
	root := t.TempDir()
	for name, write := range map[string]func(*os.File) error{
		"short": func(f *os.File) error { _, err := f.WriteString("a line"); return errors.Join(err, f.Sync()) },
		"hole":  func(f *os.File) error { return f.Truncate(1 << 20) },
	} {
		f, err := os.Create(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	short, hole := statAt(t, os.DirFS(root), "short"), statAt(t, os.DirFS(root), "hole")
	if onDisk(short) < 512 || onDisk(hole) != 0 {
		t.Errorf("%d bytes for %d, %d for a hole; want a block, and none", onDisk(short), short.Size(), onDisk(hole))
	}
	if got := onDisk(statAt(t, fstest.MapFS{"f": {Data: []byte("1234")}}, "f")); got != 4 {
		t.Errorf("%d bytes of a file system that has no blocks, want 4", got)
	}
}

func statAt(t *testing.T, from fs.FS, name string) fs.FileInfo {
	t.Helper()
	info, err := fs.Stat(from, name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
