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
	l := s.joinLane(name)
	s.mu.Unlock()
	if err := take(ctx, l.turn); err != nil {
		s.quitLane(name, l)
		return nil, err
	}
	return func() { s.leaveLane(name, l) }, nil
}

// tryEnter is enter without a wait: if the lane has users, leave is nil.
func (s *Store) tryEnter(name string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes[name] != nil {
		return nil
	}
	l := s.joinLane(name)
	l.turn <- struct{}{}
	return func() { s.leaveLane(name, l) }
}

// shared reports whether the lane with this name has more than one user.
func (s *Store) shared(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lanes[name] != nil && s.lanes[name].users > 1
}

// joinLane adds a user to a lane before it waits, so that later callers use the same lane. The caller
// holds s.mu.
func (s *Store) joinLane(name string) *lane {
	l := s.lanes[name]
	if l == nil {
		l = &lane{turn: make(chan struct{}, 1)}
		s.lanes[name] = l
	}
	l.users++
	return l
}

// leaveLane lets the next user of a lane begin.
func (s *Store) leaveLane(name string, l *lane) {
	<-l.turn
	s.quitLane(name, l)
}

// quitLane removes a user from a lane.
func (s *Store) quitLane(name string, l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.lanes, name)
	}
}
