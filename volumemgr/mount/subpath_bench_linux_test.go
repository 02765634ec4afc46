package mount_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

func BenchmarkOpen(b *testing.B) {
	base := b.TempDir()
	must(b, os.MkdirAll(filepath.Join(base, "a/b/c/d"), 0o755))
	for name, w := range map[string]mount.SubPathWalk{"openat2": {}, "steps": {NoOpenat2: true}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := w.Open(base, "a/b/c/d")
				must(b, err)
				must(b, f.Close())
			}
		})
	}
}
