package shutdown

import (
	"context"
	"os"
	"sync"
	"time"
)

// Machine reports the machine's shutdown, and can delay it.
type Machine interface {
	// Watch delays the next shutdown by up to want. It calls on with the current state, and again
	// for every change; the calls do not overlap. It returns nil when ctx ends. It returns an
	// error if it cannot continue; the delay then stays in force. When a shutdown is cancelled,
	// Watch calls on before it delays the next shutdown. So a Release before that call's return
	// belongs to the cancelled shutdown.
	Watch(ctx context.Context, want time.Duration, on func(down bool)) error
	// Release ends the delay. If the shutdown is cancelled, Watch delays the next
	// one.
	Release()
}

// OnSignal returns the Machine for an agent that is stopped only when the machine shuts down: the
// first value on signals reports the shutdown. release, if not nil, is called when all pods have
// ended, or when their time is over. The agent should end then. Do not end Run's ctx by the same
// signal.
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
