package local

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// maxConnections limits the connections of browsers.
const maxConnections = 256

// Serve serves the page on l until ctx ends, then closes l and returns nil. Clients need the token;
// see [WithToken].
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
