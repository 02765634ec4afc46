//go:build linux

package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Rootfs has the layers and settings of an image for a container.
type Rootfs struct {
	Image    string   // its ID
	Tags     []string // the image's names with tags
	Digests  []string // the image's names with digests of manifests, the newest last
	Layers   []string // directories for overlayfs, the topmost first; at least two, which may be empty
	Defaults Defaults // of the image
	// Mode, UID and GID are the permissions and the owner of the root directory. Overlayfs takes
	// these from the upper directory, so the caller must set them there.
	Mode     fs.FileMode
	UID, GID int
}

// Use gives an owner the layers of an image, until [Store.Release]. The layers stay even if the
// agent restarts or the image is removed. ref is the name or ID of the image. owner is a
// container's ID of letters, digits, '-', '_' and '.'. Use may be repeated for the same image.
// Errors are gRPC statuses. The code is NotFound if the image does not exist.
func (s *Store) Use(ctx context.Context, ref, owner string) (Rootfs, error) {
	if err := s.await(ctx); err != nil {
		return Rootfs{}, coded(err)
	}
	// First in the table, then on the disk: from here on the container's layers are not
	// collected.
	root, fresh, l, err := s.lease(ref, owner)
	// A repetition finds the lease on the disk.
	if err != nil || !fresh {
		return root, coded(err)
	}
	b, err := json.Marshal(l)
	if err == nil {
		err = s.leased.WriteContext(ctx, owner, b)
	}
	if err != nil {
		// Without a record the lease would be gone after a restart, under a running
		// container.
		s.mu.Lock()
		// A Release and another Use may have come between.
		if s.leases[owner] == l {
			delete(s.leases, owner)
		}
		s.mu.Unlock()
		return Rootfs{}, coded(fmt.Errorf("use %s: %w", shown(ref), err))
	}
	return root, nil
}

// lease finds an image and adds a lease of its layers to the table, both under s.mu, so that no
// layer is collected in between. fresh reports that the lease is new and has to be written to the
// disk.
func (s *Store) lease(ref, owner string) (_ Rootfs, fresh bool, _ *lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(ref)
	if r == nil {
		return Rootfs{}, false, nil, fmt.Errorf("%w: image %s", errNotFound, shown(ref))
	}
	// Without an entry for the root the mode is 0755, as unpacking makes it.
	root := Rootfs{Image: string(r.ID), Tags: s.tagsOf(r), Digests: slices.Clone(r.Digests), Defaults: r.config.public(), Mode: 0o755}
	// The record's own map must not be in the hands of callers.
	root.Defaults.Labels = maps.Clone(root.Defaults.Labels)
	l := &lease{Image: r.ID}
	haveRoot := false
	for _, key := range slices.Backward(r.Layers) {
		y := s.layers[key]
		// The lower one of two that are the same adds nothing, and overlayfs
		// refuses it.
		if slices.Contains(l.Layers, key) {
			continue
		}
		l.Layers = append(l.Layers, key)
		root.Layers = append(root.Layers, filepath.Join(y.dir, treeDir))
		// The topmost layer that says something of the root decides.
		if y.Root != nil && !haveRoot {
			haveRoot = true
			root.Mode, root.UID, root.GID = fileMode(y.Root.Mode), y.Root.UID, y.Root.GID
		}
		if y.OpaqueRoot { // overlayfs does not look at that of a root
			break
		}
	}
	for _, d := range emptyDirs {
		if len(root.Layers) < len(emptyDirs) {
			root.Layers = append(root.Layers, s.path(d))
		}
	}
	old := s.leases[owner]
	switch {
	// A damaged record is replaced by what the owner says now.
	case old == nil, old.Unknown:
		s.leases[owner] = l
		return root, true, l, nil
	// A container cannot change its layers while they may be mounted.
	case old.Image != r.ID || !slices.Equal(old.Layers, l.Layers):
		return Rootfs{}, false, nil, fmt.Errorf("%w: lease %s has image %s already; want %s", errInvalid, shown(owner), old.Image, r.ID)
	}
	return root, false, old, nil
}

// fileMode converts a mode of the kernel to one of the os package.
func fileMode(m uint32) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	for bit, mode := range map[uint32]fs.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if m&bit != 0 {
			out |= mode
		}
	}
	return out
}

// Release ends the lease of an owner. Before that, the caller must have unmounted the layers. It
// is not an error if the owner has no lease. Release removes layers that nobody needs any more,
// and waits at most 30 seconds until their files are deleted.
func (s *Store) Release(owner string) error {
	const timeout = 30 * time.Second // for a disk
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := s.await(ctx); err != nil {
		return coded(err)
	}
	s.mu.Lock()
	_, ok := s.leases[owner]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	// The disk first: a lease too many keeps layers, one too few would lose them under
	// a container.
	if err := s.leased.DeleteContext(ctx, owner); err != nil {
		return coded(fmt.Errorf("release %s: %w", shown(owner), err))
	}
	s.mu.Lock()
	delete(s.leases, owner)
	s.mu.Unlock()
	_ = s.collected(ctx) // the lease is gone, and the files go in any case
	return nil
}

// Owners returns the owners of all leases, sorted.
func (s *Store) Owners(ctx context.Context) ([]string, error) {
	if err := s.await(ctx); err != nil {
		return nil, coded(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.leases)), nil
}
