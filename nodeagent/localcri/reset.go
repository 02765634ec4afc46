package localcri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"go.uber.org/zap"

	agentmachine "github.com/nodewright/nodewright/agent/machine"
	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/rmtree"
)

// ResetOptions say what [Reset] takes back.
type ResetOptions struct {
	// RootDir is that of the node; kubeletconfig.DefaultRootDir.
	RootDir string
	// CgroupDriver is that of the node's configuration; cgroupfs.
	CgroupDriver string
	// Images says that images go, too.
	Images bool
	Log    *zap.Logger // silent
}

// resetAtATime is how many sandboxes are removed at a time.
const resetAtATime = 4

// Reset ends all containers of a node's own runtime, at once, and takes back what it
// has made: sandboxes, networks, mounts, and its directories. The agent must not run:
// the error is a machine.ErrLocked then. Volumes of pods stay where they are. What
// fails does not keep the rest from being taken back.
func Reset(ctx context.Context, o ResetOptions, cfg Config) error {
	if o.RootDir == "" {
		o.RootDir = kubeletconfig.DefaultRootDir
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	m := maker{cfg: cfg, root: o.RootDir, driver: o.CgroupDriver, log: o.Log}
	if _, err := os.Stat(m.path()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := agentmachine.LockRoot(o.RootDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	m.cfg.PreloadDir = ""
	n, err := m.make(ctx)
	if err != nil {
		return err
	}
	return errors.Join(n.empty(ctx), m.remove(ctx, o.Images))
}

// empty runs the runtime until it has no sandbox any more.
func (n *node) empty(ctx context.Context) error {
	n.keep = nil
	running, end := context.WithCancel(ctx)
	defer end()
	closeBridge := n.bridge
	n.bridge = nil // it is needed after the end of run
	ended := make(chan error, 1)
	go func() { ended <- n.run(running) }()
	err := n.removeAll(ctx)
	for _, a := range n.network.List() {
		if derr := n.network.Detach(ctx, a.ID); derr != nil {
			err = errors.Join(err, fmt.Errorf("network of %s: %w", a.ID, derr))
		}
	}
	end()
	err = errors.Join(err, <-ended)
	if closeBridge != nil {
		err = errors.Join(err, closeBridge.Reset(ctx))
		closeBridge.Close()
	}
	return err
}

// removeAll removes all sandboxes with their containers.
func (n *node) removeAll(ctx context.Context) error {
	list, err := n.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := []error{}
	places := make(chan struct{}, resetAtATime)
	for _, s := range list {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			err := n.runtime.StopPodSandbox(ctx, s.GetId())
			if err == nil {
				err = n.runtime.RemovePodSandbox(ctx, s.GetId())
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("sandbox of pod %s/%s: %w", s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remove removes the runtime's directories with what is mounted there.
func (m *maker) remove(ctx context.Context, images bool) error {
	names := namesFor(m.root)
	dirs := []string{names.stateDir, m.path("pods"), m.path("network"), m.path("bridge"), m.path("cni"), m.path("bin")}
	if images {
		dirs = append(dirs, m.path())
	}
	var errs []error
	for _, dir := range dirs {
		if err := unmountBelow(ctx, dir); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, gone(rmtree.Remove(dir)))
	}
	if images {
		errs = append(errs, gone(rmtree.Remove(nodeagent.RuntimeRecords(m.root))))
	}
	return errors.Join(append(errs, cgroups.Host{}.Remove(ctx, names.monitors))...)
}

// gone is nil for what was not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unmountBelow unmounts what is mounted at a directory and below it, the last first.
func unmountBelow(ctx context.Context, dir string) error {
	var kernel mount.Kernel
	table, err := mount.Under(ctx, &kernel, dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range slices.Backward(table) {
		if err := kernel.Unmount(ctx, e.Target, mount.Plain); err != nil && !errors.Is(err, mount.ErrNotMounted) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
