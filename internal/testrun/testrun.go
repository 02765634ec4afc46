// Package testrun runs methods such as Run in tests.
package testrun

import (
	"context"
	"sync"
	"testing"
)

// Start calls run on a goroutine of its own. The returned function ends the context of run and
// waits until run has returned; an error of run fails the test. The end of the test calls it, too.
// It may be called more than once.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
