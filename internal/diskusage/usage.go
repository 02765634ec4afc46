// Package diskusage measures how much of a disk a directory takes.
//
//	u, err := usage.Statfs("/mnt/share")              // what the file system says
//	u, err := usage.Quota("/var/lib/agent/pods/x/y")  // what the kernel has counted
//	u, err := diskusage.Walk(ctx, "/var/lib/agent/pods/x/y", diskusage.Limits{})
//
// They are in order of cost. Statfs asks the file system as a whole, and is
// right for what is mounted by itself. Quota asks for the project that the
// directory belongs to (XFS, ext4 and f2fs with project quota): the kernel
// keeps count. Walk looks at every file, and stops where that is too many: what
// it has seen by then is a lower bound. A [Survey] goes on from there the next
// time. A [Meter] walks again only when there may be something new.
package diskusage

import (
	"context"
	"errors"
	"time"
)

// Usage is how full a volume is. Fields that are not known are -1.
type Usage struct {
	Capacity, Used, Available      int64 // bytes
	Inodes, InodesUsed, InodesFree int64
	// At is when it was measured.
	At time.Time
	// AtLeast means that Used and InodesUsed are lower bounds: part of the
	// volume has not been seen.
	AtLeast bool
}

// Unknown is a Usage of which nothing is known but the time.
func Unknown() Usage {
	return Usage{Capacity: -1, Used: -1, Available: -1, Inodes: -1, InodesUsed: -1, InodesFree: -1, At: time.Now()}
}

// ErrNoQuota means that the directory belongs to no project, or that the kernel
// does not count for it.
var ErrNoQuota = errors.New("no project quota")

// Limits bound a walk, which stops there and returns a lower bound; the zero value of each field means the default beside
// it.
type Limits struct {
	Files int           // 1,000,000
	Time  time.Duration // 10s
	// Pause is how long to rest after every thousand files, so that a walk
	// does not take the disk from who works on it; 1ms.
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

// Walk adds up what dir and everything below it takes: blocks and not sizes, a
// file with several links once, nothing of other file systems or of what is
// mounted below. What vanishes meanwhile does not count. Capacity and Available
// are those of the file system. Where it stops, at a limit or at the end of ctx,
// it returns what it has seen, AtLeast. Trees may be of any depth and width.
func Walk(ctx context.Context, dir string, limits Limits) (Usage, error) {
	var s Survey
	return s.Walk(ctx, dir, limits)
}
