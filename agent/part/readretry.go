package part

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
)

// ReadWithRetry calls read until it succeeds or ctx ends, and returns the last error. Use it for
// records that Restore requires: a [Store] returns an error if a disk hangs for half a minute,
// but a part without its records would assign resources of running pods to others, and would
// not release those of removed pods. Meanwhile only pods that need the part wait (see
// [RestoreTimeout]). The same error is logged only once.
func ReadWithRetry(ctx context.Context, log *zap.Logger, read func() error) error {
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
