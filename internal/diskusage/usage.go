// Package diskusage measures the disk usage of a directory.
//
//	u, err := diskusage.Statfs("/mnt/share")              // of the file system
//	u, err := diskusage.Quota("/var/lib/agent/pods/x/y")  // of the directory's project
//	u, err := diskusage.Walk(ctx, "/var/lib/agent/pods/x/y", diskusage.Limits{})
//
// The three functions are listed by their cost, the cheapest first. Statfs returns the
// usage of a whole file system; use it for a directory that is a mount point. Quota
// returns the usage of the project that [Assign] gave to a directory. The kernel counts
// projects on ext4, XFS and f2fs with project quotas; Quota needs Linux 5.14. Walk visits
// every file. When Walk reaches a limit it stops, and its result is a lower bound. A
// [Survey] continues at the next call where the last call stopped. A [Meter] walks again
// only when the content may have changed.
package diskusage

import (
	"context"
	"errors"
	"time"
)

// Usage is the usage of a volume. Unknown fields are -1.
type Usage struct {
	Capacity, Used, Available      int64 // bytes
	Inodes, InodesUsed, InodesFree int64
	// At is the time of the measurement.
	At time.Time
	// AtLeast means that Used and InodesUsed are lower bounds: a part of the volume
	// was not visited.
	AtLeast bool
}

// Unknown returns a Usage in which only At is known: the current time.
func Unknown() Usage {
	return Usage{Capacity: -1, Used: -1, Available: -1, Inodes: -1, InodesUsed: -1, InodesFree: -1, At: time.Now()}
}

// HeldFile is a deleted file that occupies space until the last process closes and unmaps
// it.
type HeldFile struct {
	// Overlay is true if the file is on an overlayfs, such as a container's root.
	Overlay bool
	// Root is the path, within the file system, of the mount through which the process
	// opened the file. It is of use if Overlay is false.
	Root string
	// Work is the mount option workdir of the overlayfs.
	Work   string
	Device uint64 // of the file system
	Bytes  int64  // allocated
}

// ErrNoQuota means that [Assign] gave the directory no project, or that the kernel does not count
// projects on the file system.
var ErrNoQuota = errors.New("no project quota")

// Limits are the limits of a walk. The zero value of each field means the default
// beside it.
type Limits struct {
	Files int           // 1,000,000
	Time  time.Duration // 10s
	// Pause is the pause after every thousand files, so that other processes can
	// use the disk; 1ms.
	Pause time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Files == 0 {
		l.Files = 1_000_000
	}
	if l.Time == 0 {
		l.Time = 10 * time.Second
	}
	if l.Pause == 0 {
		l.Pause = time.Millisecond
	}
	return l
}

// Walk adds up the usage of dir and everything below it: allocated blocks, not sizes. A
// file with several links counts once. Other file systems and mounts below dir do not
// count, nor do files that are removed during the walk. Capacity and Available are those
// of the file system. If Walk reaches a limit, or if ctx ends, it returns the sum so far
// with AtLeast set. Trees may have any depth and width.
func Walk(ctx context.Context, dir string, limits Limits) (Usage, error) {
	var s Survey
	return s.Walk(ctx, dir, limits)
}
