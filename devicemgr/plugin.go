package devicemgr

import "context"

// Plugin offers the devices of one resource. The manager wraps a program that registers at the
// socket as a Plugin; [Manager.Offer] adds one of this process. Calls may overlap and must return
// when their ctx ends. After the first ErrAway for a pod, the pod waits for the plugin to
// register again; after a second one, or after any other error, the pod is rejected.
// Config.Timeout limits each call except Watch. No lock is held during a call.
type Plugin interface {
	// Options returns the optional calls that the plugin implements. The manager calls it first,
	// and again before each further Watch.
	Options(ctx context.Context) (Options, error)
	// Watch calls list with all devices, first at once and then at each change, until ctx ends or
	// the plugin goes away. The manager owns each list that it gets. list may block for a moment,
	// and must not be called after Watch has returned. Whenever Watch returns, even nil, the
	// manager calls it again after a pause.
	Watch(ctx context.Context, list func([]Device)) error
	// Prefer chooses size of the available devices, including those in must. It is
	// called only if Options has Prefer. The manager ignores IDs that are not
	// available.
	Prefer(ctx context.Context, available, must []string, size int) ([]string, error)
	// Allocate returns the additions that a container needs to use some devices. It may be called
	// twice for the same devices, after a failed admission or the loss of a record. No call
	// undoes it.
	Allocate(ctx context.Context, ids []string) (Attachment, error)
	// PreStart prepares devices for a container that is about to start. It is called before every
	// start, including restarts, if Options has PreStart. An error prevents the start.
	PreStart(ctx context.Context, ids []string) error
	// Close is the last call. Watch has returned; calls for pods may still be running and may
	// then fail.
	Close() error
}

// Options lists the optional calls that a plugin implements, with their names in
// the device plugin API.
type Options struct {
	Prefer   bool // get_preferred_allocation_available
	PreStart bool // pre_start_required
}
