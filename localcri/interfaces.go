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
	// Attach connects a sandbox to the network. A second call with the same attachment ID has no
	// further effect and returns the same result.
	Attach(ctx context.Context, a network.Attachment) (network.Result, error)
	// Detach disconnects a sandbox. It may be called again, and after the network namespace is
	// gone.
	Detach(ctx context.Context, id string) error
	// Get returns the network of an attached ID, without waiting. A [LoadingNetwork] knows
	// the sandboxes of earlier processes only once it has loaded.
	Get(id string) (network.Result, bool)
	// List returns the sandboxes that have a network, without waiting.
	List() []network.Info
	Status() error
}

// Images provides the image layers of containers; an image.Store implements it.
type Images interface {
	// Use makes an owner, which is a container, the user of an image's layers until Release. The
	// layers are not removed while they have a user.
	Use(ctx context.Context, ref, owner string) (image.Rootfs, error)
	Release(owner string) error
	// Owners returns all owners that use layers.
	Owners(ctx context.Context) ([]string, error)
}

// CDI adds devices of the Container Device Interface to a container; a cdi.Registry implements
// it.
type CDI interface {
	// Inject changes spec so that the container has the devices. Names are fully qualified, such
	// as vendor/class=name. If a name is unknown, Inject changes nothing, and the error contains
	// the name.
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
