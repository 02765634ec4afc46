package safefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/safefile"
)

func TestMakeDirs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "c")
	for range 2 { // what is there is no error
		if err := safefile.MakeDirs(path, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"a", "a/b", "a/b/c"} {
		if info, err := os.Stat(filepath.Join(dir, d)); err != nil || !info.IsDir() || info.Mode().Perm()&0o027 != 0 {
			t.Errorf("%s: %v, %v", d, info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"file", "file/below"} {
		if err := safefile.MakeDirs(filepath.Join(dir, bad), 0o750); err == nil || !strings.Contains(err.Error(), "file") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
