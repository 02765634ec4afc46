package podmgr

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Pauses between scans of a directory.
const (
	// busyPoll is the interval of checks of a file that is being written: the end of writing
	// causes no event.
	busyPoll = 10 * time.Millisecond
	// stuckPoll is the interval for a file that has been open for writing for long.
	stuckPoll = time.Second
	// missingPoll is the interval for a directory that cannot be watched.
	missingPoll = time.Second
	// burst is the time during which more changes are collected after the first, so that a copy
	// of many files is one change. It delays each change.
	burst = 2 * time.Millisecond
)

// await waits for a change, for at most limit. It returns false when ctx ends, and otherwise
// true. More changes do not extend the burst, so a busy directory is still read.
func await(ctx context.Context, changed <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-changed:
	}
	t.Reset(burst)
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	}
	select {
	case <-changed: // of the same burst
	default:
	}
	return true
}

// removals collects the paths that were removed since the last scan, even if they exist again.
type removals struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (r *removals) add(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths == nil {
		r.paths = map[string]bool{}
	}
	r.paths[path] = true
}

// take returns the collected paths and clears the collection.
func (r *removals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Sorted(maps.Keys(r.paths))
	clear(r.paths)
	return out
}
