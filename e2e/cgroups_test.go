package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	nodeblock "github.com/nodewright/nodewright/node"
)

// cgroupRoot makes a cgroup for the pods, and removes it in the end.
func cgroupRoot(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("/nwe2e-%d", os.Getpid())
	dirs := []string{filepath.Join("/sys/fs/cgroup", name)}
	if !nodeblock.CgroupV2() {
		found, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		dirs = nil
		for _, f := range found {
			dirs = append(dirs, filepath.Join(filepath.Dir(f), name))
		}
	}
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, d := range dirs {
			var all []string
			_ = filepath.WalkDir(d, func(p string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					all = append(all, p)
				}
				return nil // what vanishes meanwhile need not be removed
			})
			for _, p := range slices.Backward(all) {
				if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Logf("remove the pods' cgroup: %v", err)
				}
			}
		}
	})
	return name
}
