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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ServerConfig holds what a Server needs. Socket, Runtime and Images are required.
type ServerConfig struct {
	// Socket is the absolute path of the unix socket, of mode 0600. One that
	// nobody listens on is replaced, anything else is left alone.
	Socket  string
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// Streams serve exec, attach and port forwarding; without them Runtime's own
	// methods of these names are called, which return a URL of theirs.
	Streams Streams
	// Ready is closed when the runtime has recovered: until then calls fail as
	// UNAVAILABLE. nil is ready at once.
	Ready <-chan struct{}
	// StreamAddress is where streams are served, a loopback address;
	// any free port of 127.0.0.1, or of ::1 where there is no IPv4.
	StreamAddress string
	// Log is silent by default.
	Log *zap.Logger
}

const (
	// maxMessage is how long a message may be both ways, in bytes, as with
	// containerd and CRI-O.
	maxMessage = 16 << 20
	// maxCalls is how many calls a connection may have in flight.
	maxCalls = 1000
	// stopPatience is how long calls in flight may take to end.
	stopPatience = 2 * time.Second
)

// usualStreamAddresses are free ports that only this machine reaches, the first of which
// that it has is taken.
var usualStreamAddresses = []string{"127.0.0.1:0", "[::1]:0"}

// Server serves a runtime. It is used once.
type Server struct{ cfg ServerConfig }

// NewServer checks cfg.
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

// Run listens and serves until ctx ends, and then returns nil. An error means
// that it could not listen, or not any more.
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
			return fmt.Errorf("streams: %w", err)
		}
		if streams, err = newStreamServer(ctx, at, s.cfg.Streams, s.cfg.Log); err != nil {
			return err
		}
	}
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	runtimeapi.RegisterRuntimeServiceServer(srv, &runtimeServer{r: s.cfg.Runtime, streams: streams, closing: ctx.Done()})
	runtimeapi.RegisterImageServiceServer(srv, &imageServer{i: s.cfg.Images})
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
		patience := time.NewTimer(stopPatience)
		defer patience.Stop()
		select {
		case <-stopped:
		case <-patience.C:
			srv.Stop() // ends the contexts of calls
		}
		return nil
	})
	return g.Wait()
}
