package main

import (
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
)

// serve serves the local API of the agent a on a unix socket, in the background, until stop
// is called. It opens the socket when the agent is ready and so has locked its root
// directory. If the socket cannot be opened, the agent runs without it.
func serve(a *agent.Agent, socket string, log *zap.Logger) (stop func()) {
	srv := &http.Server{Handler: local.Handler(a, nil), ReadHeaderTimeout: 10 * time.Second}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-end:
			return
		case <-a.Ready():
		}
		l, err := local.Listen(socket)
		if err != nil {
			log.Error("failed to open the agent's socket", zap.Error(err))
			return
		}
		defer func() { _ = os.Remove(socket) }()
		_ = srv.Serve(l)
	}()
	return func() {
		close(end)
		_ = srv.Close()
		<-ended
	}
}
