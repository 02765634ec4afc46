package localcri

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Dir returns the directory of a node's own runtime, below the node's root directory.
func Dir(rootDir string) string { return filepath.Join(rootDir, "localcri") }

// ResetOptions configures [Reset].
type ResetOptions struct {
	// RootDir is the root directory of the node. The default is kubeletconfig.DefaultRootDir.
	RootDir string
	// CgroupDriver is the driver in the node's configuration. The default is "cgroupfs".
	CgroupDriver string
	// Images removes images as well, and the record of the node's runtime, so that the next agent
	// may choose another runtime.
	Images bool
	// All removes everything below RootDir, including images and data of volumes. If a mount
	// remains there, nothing of this is removed.
	All bool
	// ClaimsDir is the node's Settings.ClaimsDir. The default is node.ClaimsDir.
	ClaimsDir string
	// Removed is called for each removed pod; see localcri.ResetOptions.
	Removed func(pod string, containers int)
	Log     *zap.Logger // if nil, nothing is logged
}

// Reset calls [localcri.Reset] for the runtime of a node. It also unmounts everything that the
// node's pods and plugins left below its root directory: tmpfs of Secrets, memory-backed
// emptyDirs, subPath binds, volumes of drivers. If o.All is false, data of volumes on disk is
// kept. The error names each remaining mount; do not remove the directory before it is unmounted,
// since a subPath bind leads to a directory of the host. The agent must not run: otherwise the
// error is node.ErrLocked.
func Reset(ctx context.Context, o ResetOptions, cfg localcri.InProcessConfig) error {
	if o.RootDir == "" {
		o.RootDir = kubeletconfig.DefaultRootDir
	}
	root, err := nodeagent.ResolveRoot(o.RootDir)
	if err != nil {
		return err
	}
	o.RootDir = root
	cfg.RootDir, cfg.CgroupDriver, cfg.Log = Dir(o.RootDir), o.CgroupDriver, o.Log
	if _, err := os.Stat(cfg.RootDir); errors.Is(err, fs.ErrNotExist) && !o.All {
		return nil
	}
	if _, err := os.Stat(o.RootDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := node.LockRoot(o.RootDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	err = localcri.Reset(ctx, cfg, localcri.ResetOptions{Images: o.Images || o.All, Removed: o.Removed})
	// After the containers, which use the mounts.
	err = errors.Join(err, mount.UnmountBelow(ctx, &mount.Kernel{}, o.RootDir, mount.Network))
	if err == nil && o.ClaimsDir != nodeagent.NoClaims { // nothing of it runs any more
		err = node.DropClaims(ctx, o.ClaimsDir, o.RootDir)
	}
	switch {
	case o.All && err == nil:
		return empty(o.RootDir)
	case o.Images:
		err = errors.Join(err, rmtree.Remove(nodeagent.RuntimeRecords(o.RootDir)))
	}
	return err
}

// maxEntries is the most entries that a reset removes from a root directory. A usual root directory
// has about thirty.
const maxEntries = 10_000

// empty removes the content of a directory, and nothing beyond a mount point.
func empty(dir string) error {
	names, err := safefile.Names(dir, maxEntries)
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, rmtree.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
