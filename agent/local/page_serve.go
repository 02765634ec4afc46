package local

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// maxConnections is how many connections of browsers there may be.
const maxConnections = 256

// Serve answers on l, which it closes, until ctx ends.
// It returns nil when ctx ends. Whoever knows token gets in; see [WithToken].
func (p *Page) Serve(ctx context.Context, l net.Listener, token string, hosts ...string) error {
	srv := httpbound.New(httpbound.Config{Handler: WithToken(p, token, hosts...), MaxHead: 64 << 10, Connections: maxConnections, Log: p.cfg.Log})
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = srv.Close()
	})
	err := srv.Serve(l)
	end()
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
