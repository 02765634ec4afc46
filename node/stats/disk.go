package stats

import (
	"context"

	"github.com/nodewright/nodewright/internal/detached"
)

// Disk is a file system as a whole; sizes are in bytes. Free includes what is
// reserved for root, which Available does not.
type Disk struct {
	Device             uint64 // its number
	Capacity           uint64
	Available, Free    uint64 // to anyone, and to root
	Inodes, InodesFree uint64
}

// disks asks file systems. One that does not answer has one question in flight,
// however often it is asked: statfs of a server that is gone cannot be interrupted.
// The zero value is not usable without statfs. It may be used from any goroutine.
type disks struct {
	statfs func(path string) (Disk, error)
	calls  detached.Group[Disk]
}

// ask returns what statfs says of path, or ctx's error while it hangs: the call
// goes on without the caller, and others who ask for path meanwhile wait for its
// answer.
func (d *disks) ask(ctx context.Context, path string) (Disk, error) {
	return d.calls.Do(ctx, path, func() (Disk, error) { return d.statfs(path) })
}
