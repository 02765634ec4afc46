//go:build linux

package localcri

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Streaming is a runtime whose Exec, Attach and PortForward return URLs of a server
// on the loopback interface, for a program that uses the runtime without a socket.
type Streaming struct {
	criapi.RuntimeService
	streams Streams
	log     *zap.Logger
	server  atomic.Pointer[streamServer] // nil while Run does not serve
}

// NewStreaming returns a runtime with URLs. It has no effects.
func NewStreaming(runtime criapi.RuntimeService, streams Streams, log *zap.Logger) (*Streaming, error) {
	if runtime == nil || streams == nil {
		return nil, errors.New("serve: NewStreaming takes a runtime and its streams")
	}
	if log == nil {
		log = zap.NewNop()
	}
	return &Streaming{RuntimeService: runtime, streams: streams, log: log}, nil
}

// Run serves streams until ctx ends, and then returns nil. Streams end with it.
func (s *Streaming) Run(ctx context.Context) error {
	server, err := newStreamServer(ctx, ServerConfig{Streams: s.streams, Log: s.log})
	if err != nil {
		return err
	}
	s.server.Store(server)
	defer s.server.Store(nil)
	defer context.AfterFunc(ctx, server.stop)()
	return server.run()
}

// with calls f with the server that has URLs.
func with[R any](s *Streaming, f func(r *runtimeServer) (R, error)) (R, error) {
	server := s.server.Load()
	if server == nil {
		var none R
		return none, status.Error(codes.Unavailable, "streams are not served: the runtime does not run")
	}
	return f(&runtimeServer{r: s.RuntimeService, streams: server})
}

// Exec returns a URL for a command in a container.
func (s *Streaming) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return with(s, func(r *runtimeServer) (*runtimeapi.ExecResponse, error) { return r.Exec(ctx, q) })
}

// Attach returns a URL for a container's streams.
func (s *Streaming) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return with(s, func(r *runtimeServer) (*runtimeapi.AttachResponse, error) { return r.Attach(ctx, q) })
}

// PortForward returns a URL for ports of a sandbox.
func (s *Streaming) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return with(s, func(r *runtimeServer) (*runtimeapi.PortForwardResponse, error) { return r.PortForward(ctx, q) })
}
