package stats

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

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
