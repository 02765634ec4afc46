package cluster

import (
	"context"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/nodewright/nodewright/kubeapi"
)

// run keeps the node in its cluster until ctx ends. It renews the lease until then, and does not
// wait for a certificate.
func (cl *cluster) run(ctx context.Context, log *zap.Logger) error {
	if err := cl.node.Restore(); err != nil {
		log.Warn("failed to read stored Node; using the API server's only", zap.Error(err))
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range []*kubeapi.Credentials{cl.own, cl.serving} {
		if m != nil {
			g.Go(func() error { return m.Run(ctx) })
		}
	}
	if cl.hasDrivers() {
		g.Go(func() error { return cl.slices.Run(ctx) })
	}
	for _, run := range []func(context.Context) error{cl.events.Run, cl.catalog.Run, cl.bundles.Run, cl.storage.Run, cl.status.Run, cl.node.Run, cl.lease.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}
