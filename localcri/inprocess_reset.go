package localcri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/internal/ownerlock"
	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// resetAtATime limits how many sandboxes are removed concurrently.
const resetAtATime = 4

// ResetOptions says what [Reset] removes.
type ResetOptions struct {
	// Images says to remove the images, too.
	Images bool
	// Removed is called after each removed pod, with its name as namespace/name and its number of
	// containers. Calls do not overlap. Removed may be nil.
	Removed func(pod string, containers int)
}

// Reset kills all containers of a runtime, and removes everything that it has created: sandboxes,
// networks, mounts, and its directories. The runtime must not be running; otherwise the error
// names its process. Volumes of pods are not removed. Reset continues after failures.
func Reset(ctx context.Context, cfg InProcessConfig, o ResetOptions) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if _, err := os.Stat(cfg.RootDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	cfg.PreloadDir = ""
	m := maker{cfg}
	r, err := m.make(ctx)
	if err != nil {
		return err
	}
	err = r.empty(ctx, o.Removed)
	if held := (*ownerlock.HeldError)(nil); errors.As(err, &held) { // another process has started meanwhile
		return err
	}
	return errors.Join(err, m.remove(ctx, o.Images))
}

// empty runs the runtime, removes all sandboxes, and ends the runtime.
func (r *InProcess) empty(ctx context.Context, removed func(pod string, containers int)) error {
	r.keep = nil
	running, end := context.WithCancel(ctx)
	defer end()
	closeBridge := r.bridge
	r.bridge = nil // Run must not close it: detaching the networks below needs it
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	err := r.removeAll(ctx, removed)
	for _, a := range r.network.List() {
		if derr := r.network.Detach(ctx, a.ID); derr != nil {
			err = errors.Join(err, fmt.Errorf("detach network of %s: %w", a.ID, derr))
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
func (r *InProcess) removeAll(ctx context.Context, removed func(pod string, containers int)) error {
	list, err := r.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	containers, err := r.runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	of := map[string]int{} // number of containers by sandbox
	for _, c := range containers {
		of[c.GetPodSandboxId()]++
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := []error{}
	places := make(chan struct{}, resetAtATime)
	for _, s := range list {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			err := r.runtime.StopPodSandbox(ctx, s.GetId())
			if err == nil {
				err = r.runtime.RemovePodSandbox(ctx, s.GetId())
			}
			mu.Lock()
			defer mu.Unlock()
			pod := s.GetMetadata().GetNamespace() + "/" + s.GetMetadata().GetName()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("remove sandbox of pod %s: %w", pod, err))
			case removed != nil:
				removed(pod, of[s.GetId()])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remove removes the runtime's directories and the mounts in them.
func (m *maker) remove(ctx context.Context, images bool) error {
	names := namesFor(m.RootDir)
	dirs := []string{names.stateDir, m.path("pods"), m.path("network"), m.path("bridge"), m.path("cni")}
	if images {
		dirs = append(dirs, m.RootDir)
	}
	var kernel mount.Kernel
	var errs []error
	for _, dir := range dirs {
		// A directory that still has a mount is kept: the mounted content is not the runtime's to
		// remove.
		if err := errors.Join(mount.UnmountBelow(ctx, &kernel, dir, mount.Plain), mount.UnmountAll(ctx, &kernel, dir, mount.Plain)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, gone(rmtree.Remove(dir)))
	}
	return errors.Join(append(errs, cgroups.Host{}.Remove(ctx, names.monitors))...)
}

// gone returns nil if err means that a file does not exist, and otherwise err.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
