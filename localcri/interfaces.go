//go:build linux

package localcri

import (
	"context"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network"
)

// Network gives sandboxes their networks; a network.Network implements it.
type Network interface {
	// Attach is idempotent by the attachment's ID.
	Attach(ctx context.Context, a network.Attachment) (network.Result, error)
	// Detach is idempotent; the namespace may be gone.
	Detach(ctx context.Context, id string) error
	// Get returns the network of an attached ID, without waiting. A [LoadingNetwork] knows
	// the sandboxes of earlier processes only once it has loaded.
	Get(id string) (network.Result, bool)
	// List returns the sandboxes that have a network, without waiting.
	List() []network.Info
	Status() error
}

// Images has the images; an image.Store implements it.
type Images interface {
	// Use leases the layers of an image to an owner until Release.
	Use(ctx context.Context, ref, owner string) (image.Rootfs, error)
	Release(owner string) error
	// Owners returns the owners of leases.
	Owners(ctx context.Context) ([]string, error)
}

// CDI adds devices of the Container Device Interface to a container; a cdi.Registry implements
// it.
type CDI interface {
	// Inject changes spec so that the container has the devices. Names are fully qualified, such
	// as vendor/class=name. For an unknown name it returns an error that names it, and changes
	// nothing.
	Inject(ctx context.Context, spec *specs.Spec, names []string) error
}

// LoadingNetwork is a [Network] that reads its records in the background. The channel of Loaded
// is closed once it has read all of them.
type LoadingNetwork interface {
	Loaded() <-chan struct{}
}

// DirCDI is a [CDI] that reads files in directories, which the runtime's status lists.
type DirCDI interface {
	Dirs() []string
}
