package oom

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Counters detects kills by the counters of cgroup v2. The kernel reports changes below
// the pods' root in one file; only after such a change are the counters of the cgroups
// below it read. Watch may be called repeatedly: kills between two calls are reported
// by the later one.
type Counters struct {
	mount, root string

	mu   sync.Mutex // one watch at a time
	tree tree
}

// NewCounters returns Counters for the pods below the cgroup root (such as
// /kubepods.slice) of the hierarchy at mount (/sys/fs/cgroup).
func NewCounters(mount, root string) *Counters {
	rel := strings.Trim(filepath.Clean(root), "/")
	if rel == "" {
		rel = "."
	}
	return &Counters{mount: mount, root: rel, tree: tree{files: os.DirFS(mount), root: rel}}
}

// Watch calls the function on for each kill until ctx ends, and then returns nil.
func (c *Counters) Watch(ctx context.Context, on func(Kill)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := filepath.Join(c.mount, c.root, "memory.events")
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify") // not blocking: Close ends a Read
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer func() {
		if stop() {
			_ = f.Close()
		}
	}()
	if _, err := unix.InotifyAddWatch(fd, events, unix.IN_MODIFY|unix.IN_DELETE_SELF); err != nil {
		return fmt.Errorf("watch %s: %w", events, err)
	}
	buf := make([]byte, 16*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		kills, err := c.tree.kills(time.Now())
		for _, k := range kills {
			on(k)
		}
		if err != nil {
			return err
		}
		if _, err := f.Read(buf); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("inotify: %w", err)
		}
		if _, err := os.Stat(events); err != nil {
			return fmt.Errorf("pods' cgroup was removed: %w", err)
		}
	}
}
