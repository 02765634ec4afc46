package devicemgr

import "context"

// Plugin offers the devices of one resource. Programs that register through a
// socket become one; [Manager.Offer] takes those within this process. Calls may
// overlap and must end when their ctx does.
type Plugin interface {
	// Options says which calls the plugin wants. It is the first call, and
	// is made again before each Watch but the first.
	Options(ctx context.Context) (Options, error)
	// Watch calls list with all devices, now and at each change, until ctx
	// ends or the plugin goes away. The list is the manager's from then on.
	Watch(ctx context.Context, list func([]Device)) error
	// Prefer chooses size of the available devices, those of must among them.
	Prefer(ctx context.Context, available, must []string, size int) ([]string, error)
	// Allocate says what a container needs to use some devices.
	Allocate(ctx context.Context, ids []string) (Attachment, error)
	// PreStart makes devices ready for a container that is about to start.
	PreStart(ctx context.Context, ids []string) error
	// Close is the last call.
	Close() error
}

// Options are the calls that a plugin wants.
type Options struct {
	Prefer   bool // get_preferred_allocation_available
	PreStart bool // pre_start_required
}
