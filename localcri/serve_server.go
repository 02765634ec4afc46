//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/internal/criserver"
)

// ServerConfig holds what a Server needs. Socket, Runtime and Images are required.
type ServerConfig struct {
	// Socket is the absolute path of the unix socket, which has mode 0600. A socket on which no
	// process listens is replaced; any other file is an error.
	Socket  string
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// Streams serves exec, attach and port forwarding. If it is nil, the Server calls Runtime's
	// methods Exec, Attach and PortForward, which return URLs.
	Streams Streams
	// Ready is closed when the runtime has recovered. Until then, calls fail with UNAVAILABLE. If
	// it is nil, the runtime counts as ready at once.
	Ready <-chan struct{}
	// StreamAddress is the loopback address for streams. If it is "", a free port of 127.0.0.1 is
	// used or, on a machine without IPv4, of ::1.
	StreamAddress string
	// Log receives messages about failures. If it is nil, nothing is logged.
	Log *zap.Logger
}

const (
	// maxMessage limits the bytes of a message in both directions, as in containerd and CRI-O.
	maxMessage = 16 << 20
	// maxCalls limits the concurrent calls of a connection.
	maxCalls = 1000
	// stopTimeout limits how long running calls may take to end.
	stopTimeout = 2 * time.Second
)

// usualStreamAddresses are free ports that only this machine can reach; the first available one
// is used.
var usualStreamAddresses = []string{"127.0.0.1:0", "[::1]:0"}

// Server serves a runtime. Its Run may be called once.
type Server struct{ cfg ServerConfig }

// NewServer validates cfg and returns a Server.
func NewServer(cfg ServerConfig) (*Server, error) {
	var errs []error
	if err := checkSocket("ServerConfig.Socket", cfg.Socket); err != nil {
		errs = append(errs, err)
	}
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("serve: ServerConfig.Runtime is required"))
	}
	if cfg.Images == nil {
		errs = append(errs, errors.New("serve: ServerConfig.Images is required"))
	}
	host, _, err := net.SplitHostPort(cfg.StreamAddress)
	if ip := net.ParseIP(host); cfg.StreamAddress != "" && (err != nil || ip == nil || !ip.IsLoopback()) {
		errs = append(errs, fmt.Errorf("serve: ServerConfig.StreamAddress is %q; want a loopback address and a port, such as %s", cfg.StreamAddress, usualStreamAddresses[0]))
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Server{cfg: cfg}, nil
}

// Run listens and serves until ctx ends, and then returns nil. If it cannot listen on the socket,
// it returns an error.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := listen(s.cfg.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	var streams *streamServer
	if s.cfg.Streams != nil {
		at, err := listenLoopback(s.cfg.StreamAddress)
		if err != nil {
			return fmt.Errorf("listen for streams: %w", err)
		}
		if streams, err = newStreamServer(ctx, at, s.cfg.Streams, s.cfg.Log); err != nil {
			return err
		}
	}
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	runtime := s.cfg.Runtime
	if streams != nil {
		runtime = &streamURLs{runtime, streams}
	}
	criserver.Register(srv, runtime, s.cfg.Images, ctx.Done())
	s.cfg.Log.Info("serving runtime", zap.String("socket", s.cfg.Socket))

	var g errgroup.Group
	g.Go(func() error {
		defer cancel()
		return srv.Serve(l)
	})
	if streams != nil {
		g.Go(func() error {
			defer cancel()
			return streams.run()
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		if streams != nil {
			streams.stop()
		}
		stopped := make(chan struct{})
		go func() { srv.GracefulStop(); close(stopped) }()
		late := time.NewTimer(stopTimeout)
		defer late.Stop()
		select {
		case <-stopped:
		case <-late.C:
			srv.Stop() // cancels the contexts of calls
		}
		return nil
	})
	return g.Wait()
}
