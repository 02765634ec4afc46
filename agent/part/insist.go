package part

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
)

// Insist calls read until it succeeds or ctx ends, and returns its last error. It is
// for what Restore cannot do without: a [Store] gives up a disk that hangs after half a
// minute, and a part that went on without its records would give away what running
// pods have, and would never take back what others left. Pods that need the part wait
// meanwhile, others do not (see [RestorePatience]). Each error is logged once.
func Insist(ctx context.Context, log *zap.Logger, read func() error) error {
	wait := retry.Backoff{First: time.Second, Max: time.Minute}
	said := ""
	for {
		err := read()
		if err == nil {
			return nil
		}
		if now := err.Error(); now != said {
			log.Error("failed to read state; pods that need it wait", zap.Error(err))
			said = now
		}
		if !wait.Wait(ctx) {
			return err
		}
	}
}
