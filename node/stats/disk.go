package stats

import (
	"context"

	"github.com/nodewright/nodewright/internal/detached"
)

// Disk is a whole file system; sizes are in bytes. Free includes space reserved for
// root, Available does not.
type Disk struct {
	Device             uint64 // device number
	Capacity           uint64
	Available, Free    uint64 // to anyone, and to root
	Inodes, InodesFree uint64
}

// disks reads file systems. Each path has at most one running call: statfs of a
// server that is gone cannot be interrupted. The zero value needs statfs. It may be
// used from any goroutine.
type disks struct {
	statfs func(path string) (Disk, error)
	calls  detached.Group[Disk]
}

// ask returns the result of statfs for path, or ctx's error if it hangs: the call
// continues without the caller, and other callers for path wait for it.
func (d *disks) ask(ctx context.Context, path string) (Disk, error) {
	return d.calls.Do(ctx, path, func() (Disk, error) { return d.statfs(path) })
}
