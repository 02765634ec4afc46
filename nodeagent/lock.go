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

// lockDirs creates the directories to which a node writes, and locks the directories of its state
// and of its certificates, if it has any. The directory of pod logs is not locked: containers that
// collect logs could hold a lock there. If another agent has locked one of them, the error is
// node.ErrLocked. The kernel releases the locks when the process ends.
func lockDirs(c *kubeletconfig.Config) (*node.DirLock, error) {
	type dir struct {
		path string
		mode os.FileMode
	}
	all := []dir{{c.RootDir, 0o751}} // other users can pass to their own directories
	if c.Kubeconfig != "" || *c.EnableServer && c.TLSCertFile == "" && admitsAlone(c) == nil {
		// Only where certificates are written: two nodes may read the same ones.
		all = append(all, dir{c.CertDir, 0o755}) // as the kubelet's
	}
	var paths []string
	// The modes are for new directories; existing ones keep theirs.
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

// ResolveRoot returns the root directory of a node as an absolute path without
// symbolic links, which the mount table and runc need. A directory that does not
// exist is returned unchanged.
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
		return "", fmt.Errorf("resolve root directory %q: %w", dir, err)
	}
	return resolved, nil
}
