package agent

import "context"

// ReclaimImages and ReclaimContainers are what eviction calls.
func (a *Agent) ReclaimImages(ctx context.Context, bytes int64) (int64, error) {
	return a.gc.reclaimImages(ctx, bytes)
}

func (a *Agent) ReclaimContainers(ctx context.Context) (int, error) {
	return a.gc.reclaimContainers(ctx)
}
