package nodeagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
)

// lockDirs makes the directories that a node writes to, and keeps other agents away
// from those of its state and of its certificates, if it is to keep any. Containers
// that collect logs see the pods' logs, and could hold a lock there themselves. The
// error is node.ErrLocked if another agent has one of them. The locks go with
// the process, however it ends.
func lockDirs(c *kubeletconfig.Config) (*node.DirLock, error) {
	type dir struct {
		path string
		mode os.FileMode
	}
	all := []dir{{c.RootDir, 0o751}} // users of their own pass to what is theirs
	if c.Kubeconfig != "" || *c.EnableServer && c.TLSCertFile == "" && admitsAlone(c) == nil {
		// Only where certificates are written: two nodes may read the same ones.
		all = append(all, dir{c.CertDir, 0o755}) // as the kubelet's
	}
	var paths []string
	// The modes count for new directories; others keep theirs.
	for _, d := range all {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return nil, fmt.Errorf("directory of the node: %w", err)
		}
		paths = append(paths, d.path)
	}
	root, err := ResolveRoot(c.RootDir)
	if err != nil {
		return nil, err
	}
	c.RootDir = root
	if err := os.MkdirAll(c.PodLogsDir, 0o755); err != nil { // log collectors are other users
		return nil, fmt.Errorf("directory of pod logs: %w", err)
	}
	return node.LockDirs(paths...)
}

// ResolveRoot returns the root directory of a node as an absolute path without symbolic links: the
// mount table and runc know no others. A directory that is not there yet is returned as given.
func ResolveRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	if err != nil {
		return "", fmt.Errorf("root directory %q: %w", dir, err)
	}
	return resolved, nil
}
