package safefile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/internal/safefile"
)

// BenchmarkEntries lists a directory of 200 files, as of the logs of a busy node.
func BenchmarkEntries(b *testing.B) {
	dir := b.TempDir()
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("file-", i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		d, err := safefile.OpenDir(dir, ".")
		if err != nil {
			b.Fatal(err)
		}
		if list, err := d.Entries(1000); err != nil || len(list) != 200 {
			b.Fatal(len(list), err)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenDir holds a directory three levels down, as those of a pod's files are.
func BenchmarkOpenDir(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o700); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		d, err := safefile.OpenDir(dir, "a/b/c")
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
