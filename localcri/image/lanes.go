//go:build linux

package image

import (
	"context"
)

// lane lets one after the other do what has one name. Lanes exist while they have
// users, so that the map does not grow with every digest ever seen.
type lane struct {
	// turn has a token of whoever has the lane.
	turn  chan struct{}
	users int // guarded by Store.mu
}

// enter waits for a turn. leave must be called when the work is done. It returns the
// cause of ctx if that ends first. The order of those who wait is not fixed.
func (s *Store) enter(ctx context.Context, name string) (leave func(), err error) {
	s.mu.Lock()
	l := s.lanes[name]
	if l == nil {
		l = &lane{turn: make(chan struct{}, 1)}
		s.lanes[name] = l
	}
	// Counted before the wait: the lane must be the same for whoever comes meanwhile.
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
