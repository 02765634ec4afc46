package checkpoint

import (
	"sync"

	"github.com/nodewright/nodewright/internal/durable"
)

// sharedSyncs is a disk on which those who change a directory at the same time share a
// sync of it: one that begins when all their files have been renamed is that of each. It
// is for one directory.
type sharedSyncs struct {
	durable.Disk

	mu   sync.Mutex
	now  *dirSync // under way; nil: none is
	next *dirSync // begins after it, for those who came meanwhile; nil: nobody did
}

// dirSync is one sync of the directory.
type dirSync struct {
	done chan struct{} // closed at its end
	err  error         // set before that
}

// SyncDir returns when a sync that began after the call has ended. The one under way may
// have passed over what the caller did.
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
		<-before.done // which has made this one s.now
	}
	mine.err = s.Disk.SyncDir(path)
	s.mu.Lock()
	s.now, s.next = s.next, nil
	s.mu.Unlock()
	close(mine.done)
	return mine.err
}
