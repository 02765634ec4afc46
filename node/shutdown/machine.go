package shutdown

import (
	"context"
	"os"
	"sync"
	"time"
)

// Machine reports when the machine goes down, and can have it wait.
type Machine interface {
	// Watch makes the machine wait for up to want before it goes down, calls
	// on with what is the case now, and then for every change, one call after
	// the other. It returns nil when ctx ends, or why it cannot go on; what
	// makes the machine wait outlasts the latter. When a shutdown is called off,
	// it calls on before it makes the machine wait again: what is released
	// until then belongs to the old one.
	Watch(ctx context.Context, want time.Duration, on func(down bool)) error
	// Release lets the machine go down. If that is called off, Watch makes it
	// wait again.
	Release()
}

// OnSignal returns the Machine of an agent whose end is the machine's: the
// first value on signals means that it goes down. release, if not nil, is
// called when all pods have ended, or their time is over; the agent should end
// then. Do not end Run's ctx by the same signal.
func OnSignal(signals <-chan os.Signal, release func()) Machine {
	return &onSignal{signals: signals, release: release}
}

type onSignal struct {
	signals <-chan os.Signal
	release func()
	once    sync.Once
}

func (s *onSignal) Watch(ctx context.Context, _ time.Duration, on func(down bool)) error {
	on(false)
	select {
	case <-ctx.Done():
	case <-s.signals:
		on(true)
		<-ctx.Done()
	}
	return nil
}

func (s *onSignal) Release() {
	if s.release != nil {
		s.once.Do(s.release)
	}
}
