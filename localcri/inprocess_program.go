package localcri

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
)

// findExecutors returns the paths of the OCI runtimes in the PATH, by name.
func findExecutors() (map[string]string, error) {
	found := map[string]string{}
	for _, name := range []string{"runc", "crun"} {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		switch {
		case err == nil:
			found[name] = path
		case !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("neither runc nor crun is in the PATH; want one of them installed")
	}
	return found, nil
}
