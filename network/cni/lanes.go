package cni

import (
	"context"
	"sync"
)

// lanes serializes the calls for each attachment, including abandoned ones. No other
// call runs during a collection. The zero value is ready to use.
type lanes struct {
	mu    sync.Mutex
	in    map[string]struct{}
	alone bool
	freed chan struct{} // closed at the next leave
}

// everything is the ID of a collection. No other ID is empty.
const everything = ""

// enter waits until no other call for the ID runs. If the ID is everything, it waits until no
// call runs at all. A call for one ID does not wait for a collection that has not begun yet.
func (l *lanes) enter(ctx context.Context, id string) (leave func(), err error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		freed := l.take(id)
		if freed == nil {
			return func() { l.leave(id) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
}

// take takes the lane and returns nil. If the lane is not free, it returns a channel
// that is closed when another try may succeed.
func (l *lanes) take(id string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, taken := l.in[id]
	if id == everything {
		taken = len(l.in) > 0
	}
	if l.alone || taken {
		if l.freed == nil {
			l.freed = make(chan struct{})
		}
		return l.freed
	}
	if id == everything {
		l.alone = true
		return nil
	}
	if l.in == nil {
		l.in = map[string]struct{}{}
	}
	l.in[id] = struct{}{}
	return nil
}

func (l *lanes) leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == everything {
		l.alone = false
	}
	delete(l.in, id)
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}
