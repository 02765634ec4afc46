package podruntime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/podspec"
)

// materialize makes the directories and files that a container needs.
func materialize(plan *podspec.ContainerPlan) error {
	for _, d := range plan.Dirs {
		if err := mkdir(d); err != nil {
			return err
		}
	}
	for _, f := range plan.Files {
		if err := writeFile(f); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes a directory and gives it its mode, whatever the umask is. What
// is there already, a subPath that is a file included, stays as it is.
func mkdir(d podspec.Dir) error {
	if _, err := os.Lstat(d.Path); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.Path, d.Mode); err != nil {
		return err
	}
	return os.Chmod(d.Path, d.Mode)
}

// writeFile puts a file in place. One that running containers have mounted
// must stay the same file, so it is written over and not replaced; one that
// has its content already is not touched.
func writeFile(f podspec.File) error {
	have, err := os.ReadFile(f.Path)
	switch {
	case err == nil && (f.Keep || string(have) == f.Content):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o750); err != nil {
			return err
		}
	}
	if err := os.WriteFile(f.Path, []byte(f.Content), f.Mode); err != nil {
		return err
	}
	return os.Chmod(f.Path, f.Mode)
}
