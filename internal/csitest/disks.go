package csitest

import "context"

// Disks provides block devices for volumes. volume is a volume ID. The Driver does not
// overlap calls for one volume.
type Disks interface {
	// Attach returns the device of a volume. If the volume has no device, Attach creates
	// one, with a file system if fsType is not empty.
	Attach(ctx context.Context, volume, fsType string) (device string, err error)
	// Grow increases a device and its file system to this size in bytes.
	Grow(ctx context.Context, volume string, bytes int64) error
	// Detach removes the device and keeps its content for the next Attach. A missing
	// device is not an error.
	Detach(volume string) error
}
