package csitest

import "context"

// Disks are block devices for volumes, by volume ID. Calls for one volume do not
// overlap.
type Disks interface {
	// Attach returns the device of a volume. It creates a missing one, with a file
	// system if fsType is not empty.
	Attach(ctx context.Context, volume, fsType string) (device string, err error)
	// Grow increases a device and its file system to this size in bytes.
	Grow(ctx context.Context, volume string, bytes int64) error
	// Detach removes the device and keeps its content. A missing device is not an
	// error.
	Detach(volume string) error
}
