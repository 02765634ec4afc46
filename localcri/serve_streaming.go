//go:build linux

package localcri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamingConfig holds what a Streaming needs. Everything except Log is required.
type StreamingConfig struct {
	// Socket is the absolute path of the unix socket for the streams, which has mode 0600. Its
	// directory is created. A socket on which no process listens is replaced.
	Socket  string
	Runtime criapi.RuntimeService
	Streams Streams
	// Log is silent if it is nil.
	Log *zap.Logger
}

// Streaming is a runtime whose Exec, Attach and PortForward return URLs on a unix socket:
// unix://SOCKET/METHOD/TOKEN. Only root and the process's own user can connect. It is for a
// program with the runtime in its own process: the streams use no port of the machine, which a
// pod could occupy.
type Streaming struct {
	criapi.RuntimeService

	cfg    StreamingConfig
	server atomic.Pointer[streamServer] // nil while Run is not serving
}

// NewStreaming returns a runtime with URLs. It has no side effects.
func NewStreaming(cfg StreamingConfig) (*Streaming, error) {
	if cfg.Runtime == nil || cfg.Streams == nil {
		return nil, errors.New("serve: StreamingConfig.Runtime and Streams are required")
	}
	if err := checkSocket("StreamingConfig.Socket", cfg.Socket); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Streaming{RuntimeService: cfg.Runtime, cfg: cfg}, nil
}

// Run serves streams until ctx ends, and then returns nil. Running streams end with it.
func (s *Streaming) Run(ctx context.Context) error {
	// The runtime, which may start later, sets the directory's mode.
	if err := os.MkdirAll(filepath.Dir(s.cfg.Socket), 0o700); err != nil {
		return err
	}
	l, err := listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	server, err := newStreamServer(ctx, l, s.cfg.Streams, s.cfg.Log)
	if err != nil {
		return err
	}
	s.server.Store(server)
	defer s.server.Store(nil)
	defer context.AfterFunc(ctx, server.stop)()
	return server.run()
}

// with calls f with the server that creates URLs. It returns an error while Run is not
// serving.
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
