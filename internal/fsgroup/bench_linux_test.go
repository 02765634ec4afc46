package fsgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A walk over 1,000 files that are right already.
func BenchmarkApply(b *testing.B) {
	root := b.TempDir()
	for i := range 1000 {
		must(b, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o660))
	}
	r := Request{Root: root, GID: int64(os.Getgid())}
	for b.Loop() {
		must(b, Apply(b.Context(), r))
	}
}
