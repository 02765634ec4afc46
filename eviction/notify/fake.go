package notify

import (
	"context"
	"slices"
	"sync"
)

// Fake is a source in memory, for tests and simulations. Its zero value is
// ready, and its methods may be called from any goroutine.
type Fake struct {
	mu     sync.Mutex
	wake   func(cause string)
	levels []int64
	usage  int64
	fail   chan error
}

// Run waits until ctx ends, or Fail is called.
func (f *Fake) Run(ctx context.Context, wake func(cause string)) error {
	fail := make(chan error, 1)
	f.mu.Lock()
	f.wake, f.fail = wake, fail
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.wake, f.fail = nil, nil
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-fail:
		return err
	}
}

// Aim sets the levels that Use has to cross.
func (f *Fake) Aim(levels []int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.levels = slices.Clone(levels)
	return nil
}

// Fire reports a shortage, if Run waits for one.
func (f *Fake) Fire(cause string) {
	f.mu.Lock()
	wake := f.wake
	f.mu.Unlock()
	if wake != nil {
		wake(cause)
	}
}

// Use sets the usage in bytes, and fires if it crosses a level.
func (f *Fake) Use(usage int64) {
	f.mu.Lock()
	crossed := slices.ContainsFunc(f.levels, func(l int64) bool { return (f.usage >= l) != (usage >= l) })
	f.usage = usage
	f.mu.Unlock()
	if crossed {
		f.Fire("usage")
	}
}

// Fail ends Run with an error.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		select {
		case f.fail <- err:
		default:
		}
	}
}
