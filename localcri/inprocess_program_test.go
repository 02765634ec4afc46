package localcri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindExecutors(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := findExecutors(); err == nil || !strings.Contains(err.Error(), "neither runc nor crun") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "crun"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if found, err := findExecutors(); err != nil || len(found) != 1 || found["crun"] != filepath.Join(dir, "crun") {
		t.Error(found, err)
	}
}
