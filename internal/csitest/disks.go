package csitest

import "context"

// Disks are block devices for volumes, known by their handles. They are used by one
// call for a volume at a time.
type Disks interface {
	// Attach returns the device of a volume, which is made if it is not there: with
	// a file system if fsType is one.
	Attach(ctx context.Context, volume, fsType string) (device string, err error)
	// Grow makes a device as large as that, in bytes, and the file system on it.
	Grow(ctx context.Context, volume string, bytes int64) error
	// Detach takes the device away and keeps what is on it. One that is not there is
	// no error.
	Detach(volume string) error
}
