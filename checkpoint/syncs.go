package checkpoint

import (
	"sync"

	"github.com/nodewright/nodewright/internal/durable"
)

// sharedSyncs is a disk on which concurrent writers share the syncs of one directory. A sync that
// begins after the renames of several writers serves all of them.
type sharedSyncs struct {
	durable.Disk

	mu   sync.Mutex
	now  *dirSync // the running sync; nil if none
	next *dirSync // the sync after it, for later callers; nil if none
}

// dirSync is one fsync of the directory, which several writers may wait for.
type dirSync struct {
	done chan struct{} // closed when the sync has ended
	err  error         // set before done is closed
}

// SyncDir returns when a sync that began after the call has ended. A running sync
// may have missed the caller's change.
func (s *sharedSyncs) SyncDir(path string) error {
	s.mu.Lock()
	before, mine := s.now, s.next
	if mine != nil {
		s.mu.Unlock()
		<-mine.done
		return mine.err
	}
	mine = &dirSync{done: make(chan struct{})}
	if before == nil {
		s.now = mine
	} else {
		s.next = mine
	}
	s.mu.Unlock()
	if before != nil {
		<-before.done // the running sync has set s.now to this one
	}
	mine.err = s.Disk.SyncDir(path)
	s.mu.Lock()
	s.now, s.next = s.next, nil
	s.mu.Unlock()
	close(mine.done)
	return mine.err
}
