package stats

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestDir(t *testing.T) {
	root := t.TempDir()
	for name, size := range map[string]int{"empty": 0, "small": 10, "exact": 1024, "large": 100_000} {
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(filepath.Join(root, name), want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := fs.ReadFile(cgroupFS(root), name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := fs.ReadFile(cgroupFS(root), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, name := range []string{"/etc/passwd", "../x", ""} {
		if _, err := fs.ReadFile(cgroupFS(root), name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := fs.ReadFile(cgroupFS(root), "."); err == nil {
		t.Error("a directory can be read as a file")
	}
}
