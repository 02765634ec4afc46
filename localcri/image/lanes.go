//go:build linux

package image

import (
	"context"
)

// lane serializes work under one name. A lane exists only while it has users, so that the map
// does not grow with every digest.
type lane struct {
	// turn holds a token for the current user of the lane.
	turn  chan struct{}
	users int // guarded by Store.mu
}

// enter waits until no other caller uses the lane with this name. The caller must call leave at
// the end. If ctx ends first, enter returns the cause of ctx. Waiting callers get the lane in no
// particular order.
func (s *Store) enter(ctx context.Context, name string) (leave func(), err error) {
	s.mu.Lock()
	l := s.lanes[name]
	if l == nil {
		l = &lane{turn: make(chan struct{}, 1)}
		s.lanes[name] = l
	}
	// Counted before the wait, so that later callers use the same lane.
	l.users++
	s.mu.Unlock()
	left := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.lanes, name)
		}
	}
	if err := take(ctx, l.turn); err != nil {
		left()
		return nil, err
	}
	return func() {
		<-l.turn
		left()
	}, nil
}
