package hooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
)

// Restore restores the state of all parts, and calls learn at the same time. It returns when all
// have finished, when ctx ends, or after [part.RestoreTimeout]. So a disk that hangs delays only
// the part that needs it.
func (h *Hooks) Restore(ctx context.Context, g *Guard, learn func(context.Context) error) {
	warn := func(message string, err error, fields ...zap.Field) {
		if err != nil && !errors.Is(err, context.Canceled) {
			g.Log.Warn(message, append(fields, zap.Error(err))...)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { warn("failed to ask for the runtime's features", learn(ctx)) })
	for _, r := range h.Restorers {
		all.Go(func() {
			err := g.Call(r.Name, func() error { return r.Hook.Restore(ctx) })
			warn("failed to restore", err, zap.String("part", r.Name))
		})
	}
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	late := time.NewTimer(part.RestoreTimeout)
	defer late.Stop()
	select {
	case <-over:
	case <-ctx.Done():
	case <-late.C:
		g.Log.Error("not every part has restored its state; pods are admitted without it", zap.Duration("after", part.RestoreTimeout))
	}
}
