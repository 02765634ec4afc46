package mount_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// busy is a Mounter on which one mount does not go.
type busy struct {
	*plugintest.MountMemory
	target string
}

func (b busy) Unmount(ctx context.Context, target string, how mount.How) error {
	if target == b.target {
		return errors.New("busy")
	}
	return b.MountMemory.Unmount(ctx, target, how)
}

func TestUnmountBelowTakesTheDeepestFirstAndNamesWhatStays(t *testing.T) {
	root := t.TempDir()
	m := busy{&plugintest.MountMemory{}, filepath.Join(root, "a", "busy")}
	for _, d := range []string{"", "a", "a/b", "a/b", "a/busy", "c"} {
		target := filepath.Join(root, d)
		if err := os.MkdirAll(target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := m.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: target}); err != nil {
			t.Fatal(err)
		}
	}
	err := mount.UnmountBelow(t.Context(), m, root, mount.Plain)
	if err == nil || !strings.Contains(err.Error(), m.target+" is still mounted") {
		t.Errorf("error %v, want one that names %s", err, m.target)
	}
	table, terr := m.Table(t.Context())
	if terr != nil {
		t.Fatal(terr)
	}
	var left []string
	for _, e := range table {
		left = append(left, e.Target)
	}
	for _, want := range []string{root, m.target} {
		if !slices.Contains(left, want) {
			t.Errorf("%s is not mounted any more", want)
		}
	}
	for _, gone := range []string{filepath.Join(root, "c"), filepath.Join(root, "a", "b")} {
		if slices.Contains(left, gone) {
			t.Errorf("%s is still mounted", gone)
		}
	}
}
