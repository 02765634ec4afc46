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
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/rpcerror"
)

// StreamingConfig holds what a Streaming needs. Everything except Log is required.
type StreamingConfig struct {
	// Socket is the absolute path of the unix socket for the streams, which has mode 0600. Its
	// directory is created. A socket on which no process listens is replaced.
	Socket  string
	Runtime criapi.RuntimeService
	Streams Streams
	// Log receives messages about failures. If it is nil, nothing is logged.
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

// urls returns the runtime whose streams have URLs. It returns an error while Run is not serving.
func (s *Streaming) urls() (*streamURLs, error) {
	server := s.server.Load()
	if server == nil {
		return nil, rpcerror.New(codes.Unavailable, "streams are not served: the runtime does not run")
	}
	return &streamURLs{s.RuntimeService, server}, nil
}

// Exec returns a URL for a command in a container.
func (s *Streaming) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	u, err := s.urls()
	if err != nil {
		return nil, err
	}
	return u.Exec(ctx, q)
}

// Attach returns a URL for a container's streams.
func (s *Streaming) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	u, err := s.urls()
	if err != nil {
		return nil, err
	}
	return u.Attach(ctx, q)
}

// PortForward returns a URL for ports of a sandbox.
func (s *Streaming) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	u, err := s.urls()
	if err != nil {
		return nil, err
	}
	return u.PortForward(ctx, q)
}

// streamURLs is a runtime whose Exec, Attach and PortForward return URLs of a stream server.
type streamURLs struct {
	criapi.RuntimeService
	server *streamServer
}

func (u *streamURLs) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if err := u.running(ctx, q.GetContainerId()); err != nil {
		return nil, err
	}
	return u.server.urls.GetExec(q)
}

func (u *streamURLs) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := u.running(ctx, q.GetContainerId()); err != nil {
		return nil, err
	}
	return u.server.urls.GetAttach(q)
}

func (u *streamURLs) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	st, err := u.PodSandboxStatus(ctx, q.GetPodSandboxId(), false)
	if err != nil {
		return nil, err
	}
	if state := st.GetStatus().GetState(); state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, rpcerror.Errorf(codes.FailedPrecondition, "sandbox %s is %v; want SANDBOX_READY", q.GetPodSandboxId(), state)
	}
	return u.server.urls.GetPortForward(q)
}

// running returns an error unless a container is running. It is called before a URL is returned.
func (u *streamURLs) running(ctx context.Context, id string) error {
	st, err := u.ContainerStatus(ctx, id, false)
	if err != nil {
		return err
	}
	if state := st.GetStatus().GetState(); state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return rpcerror.Errorf(codes.FailedPrecondition, "container %s is %v; want CONTAINER_RUNNING", id, state)
	}
	return nil
}
