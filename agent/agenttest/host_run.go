package agenttest

import (
	"context"
	"sync"
	"testing"

	"github.com/nodewright/nodewright/agent/part"
)

// RunPart runs a part in its own goroutine, as the agent does. stop ends the part, waits until it
// has returned, and fails the test if it returned an error. stop may be called more than once.
func RunPart(t testing.TB, p part.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
