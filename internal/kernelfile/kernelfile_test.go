//go:build linux

package kernelfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/internal/kernelfile"
)

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("0123456789"), 1000)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 512, 9999, 10000, 10001} {
		if got, err := kernelfile.Read(file, size, 1<<20); !bytes.Equal(got, content) || err != nil {
			t.Errorf("with a buffer of %d bytes: %d bytes, %v", size, len(got), err)
		}
	}
	if got, err := kernelfile.Read(file, 512, 1000); len(got) < 1000 || len(got) > 2048 || !bytes.HasPrefix(content, got) || err != nil {
		t.Errorf("of at most 1000 bytes: %d bytes, %v", len(got), err)
	}
	if got, err := kernelfile.Read("/proc/self/status", 64, 1<<20); !bytes.Contains(got, []byte("\nVmRSS:")) || err != nil {
		t.Errorf("/proc/self/status: %q, %v", got, err)
	}
}

func TestReadFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := kernelfile.Read(filepath.Join(dir, "none"), 64, 1<<20); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if got, err := kernelfile.Read(dir, 64, 1<<20); len(got) > 0 || err == nil {
		t.Errorf("a directory: %q, %v", got, err)
	}
}
