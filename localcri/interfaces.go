//go:build linux

package localcri

import (
	"context"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network"
)

// Network gives sandboxes their networks; a network.Network does.
type Network interface {
	// Attach is idempotent by the attachment's ID.
	Attach(ctx context.Context, a network.Attachment) (network.Result, error)
	// Detach is idempotent; the namespace may be gone.
	Detach(ctx context.Context, id string) error
	// Get returns the network of an ID that is attached, and waits for nothing. Of a
	// [LoadingNetwork], sandboxes of earlier processes are shown once it has loaded.
	Get(id string) (network.Result, bool)
	// List and Status wait for nothing either.
	List() []network.Info
	Status() error
}

// Images holds the images; an image.Store does.
type Images interface {
	// Use leases the layers of an image to an owner, until Release.
	Use(ctx context.Context, ref, owner string) (image.Rootfs, error)
	Release(owner string) error
	// Owners lists who has leases.
	Owners(ctx context.Context) ([]string, error)
}

// CDI puts devices of the Container Device Interface into a container; a
// cdi.Registry does.
type CDI interface {
	// Inject changes spec so that the container has the devices, whose names are
	// fully qualified, as vendor/class=name. A name that is unknown is an error that
	// names it, and nothing is changed then.
	Inject(ctx context.Context, spec *specs.Spec, names []string) error
}

// LoadingNetwork is a [Network] that reads its records in its own time. The channel is
// closed once they are all known.
type LoadingNetwork interface {
	Loaded() <-chan struct{}
}

// DirCDI is a [CDI] that reads files below directories, which the runtime's status
// names.
type DirCDI interface {
	Dirs() []string
}
