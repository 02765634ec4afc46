package devicemgr

import "context"

// Plugin offers the devices of one resource. Programs that register through a
// socket become one; [Manager.Offer] takes those within this process. Calls may
// overlap and must end when their ctx does. An error that is ErrAway has the pod
// wait once for the plugin to come back; any other has the pod rejected. The
// manager bounds each call but Watch by Config.Timeout, and never calls with a lock
// held.
type Plugin interface {
	// Options says which calls the plugin wants. It is the first call, and
	// is made again before each Watch but the first.
	Options(ctx context.Context) (Options, error)
	// Watch calls list with all devices, now and at each change, until ctx ends or
	// the plugin goes away. The list is the manager's from then on. list may block
	// for a moment, and must not be called after Watch returned. Any return is the
	// end of the plugin for now, nil too: it is watched again after a pause.
	Watch(ctx context.Context, list func([]Device)) error
	// Prefer chooses size of the available devices, those of must among them. It is
	// called only if Options asks for it. The answer is a wish: IDs that are not
	// available are ignored.
	Prefer(ctx context.Context, available, must []string, size int) ([]string, error)
	// Allocate says what a container needs to use some devices. It may be called
	// twice for the same devices, when an admission failed after it or a record was
	// lost; there is no call that undoes it.
	Allocate(ctx context.Context, ids []string) (Attachment, error)
	// PreStart makes devices ready for a container that is about to start. It is
	// called only if Options asks for it, before every start, restarts too. An
	// error keeps the container from starting.
	PreStart(ctx context.Context, ids []string) error
	// Close is the last call. Calls for pods may still be under way, and may fail
	// then; Watch has returned.
	Close() error
}

// Options are the calls that a plugin wants. The words beside them are those of the
// device plugin API.
type Options struct {
	Prefer   bool // get_preferred_allocation_available
	PreStart bool // pre_start_required
}
