package podruntime

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/podspec"
)

// Without a binder a part that is missing is made, and none outside the volume.
func TestMakePart(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{"a/b": true, "file": true, "link/x": false, "file/x": false} {
		if err := makePart(podspec.SubPath{VolumePath: dir, Path: path}); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside are %v, %v", left, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b")); err != nil || !info.IsDir() {
		t.Errorf("a/b: %v", err)
	}
}
