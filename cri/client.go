package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of a Client.
const (
	// defaultTimeout is the kubelet's runtimeRequestTimeout.
	defaultTimeout = 2 * time.Minute
	// maxReconnectDelay is the longest time between two tries to connect.
	maxReconnectDelay = 3 * time.Second
)

// Config holds what a Client needs. Endpoint is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	// Endpoint is the runtime's socket: unix:///path or an absolute path.
	Endpoint string
	// ImageEndpoint is the socket of the image service. If it is "", the image service is at
	// Endpoint.
	ImageEndpoint string
	// Timeout is the deadline of a call. The default is 2 min. It is extended by the grace period
	// for StopContainer and by the command's time limit for ExecSync, and doubled for
	// RunPodSandbox. PullImage has only the deadline of ctx.
	Timeout time.Duration
	// Dialer opens connections in place of the socket; for tests.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Client is a CRI runtime and image service behind a unix socket. Its fields do not
// change after New.
type Client struct {
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	// conns has the runtime's connection first, and after it the image service's, if it has its own
	// socket.
	conns   []*grpc.ClientConn
	timeout time.Duration
	execs   chan struct{} // slots for outputs of ExecSync that are being received
	met     *metrics
}

var (
	_ criapi.RuntimeService      = (*Client)(nil)
	_ criapi.ImageManagerService = (*Client)(nil)
)

// New checks cfg and returns a Client that connects when it is first used. The caller
// closes it. Several clients may share cfg.Metrics.
func New(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.ImageEndpoint == "" {
		cfg.ImageEndpoint = cfg.Endpoint
	}
	socket, err := socketPath("Endpoint", cfg.Endpoint)
	imageSocket, ierr := socketPath("ImageEndpoint", cfg.ImageEndpoint)
	if err := errors.Join(err, ierr); err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("cri: Timeout %v: want a positive duration", cfg.Timeout)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	c := &Client{timeout: cfg.Timeout, met: met, execs: make(chan struct{}, execsReceived)}
	conn, err := c.connect(cfg, socket)
	if err != nil {
		return nil, err
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	if imageSocket != socket {
		if conn, err = c.connect(cfg, imageSocket); err != nil {
			_ = c.Close(context.Background())
			return nil, err
		}
	}
	c.images = runtimeapi.NewImageServiceClient(conn)
	return c, nil
}

// connect adds a connection to c.conns. The first call opens it. connect limits the size of
// messages and headers, and the bytes that the runtime may send before they are read.
func (c *Client) connect(cfg Config, socket string) (*grpc.ClientConn, error) {
	dial := cfg.Dialer
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", address)
		}
	}
	// The scheme keeps gRPC from resolving the path, and the authority from sending
	// it as a host name.
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.ForceCodecV2(newCodec())),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithIdleTimeout(0), // the event stream keeps it in use anyway
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnectDelay,
			},
			MinConnectTimeout: maxReconnectDelay,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// Close closes the connections; calls in flight fail. It does not block. The context is not used;
// it is there because the interfaces of the CRI have it.
func (c *Client) Close(context.Context) error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// IsNotFound reports whether a call failed because the runtime has no such sandbox, container or
// image. After a removal, a caller treats this error as a success.
func IsNotFound(err error) bool { return code(err) == codes.NotFound }

// IsRefused reports whether the runtime answered that the state of a sandbox or container does
// not allow the call (FailedPrecondition). An example is the removal of a container that the
// runtime believes to be running.
func IsRefused(err error) bool { return code(err) == codes.FailedPrecondition }

// IsUnavailable reports whether the runtime could not be reached. If the connection was lost during
// the call, the runtime may have executed the call nevertheless.
func IsUnavailable(err error) bool { return code(err) == codes.Unavailable }

// code returns the gRPC code of err, which may be wrapped. It is DeadlineExceeded also if a
// deadline of this process has passed.
func code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	return codes.Unknown
}

// callError is the error of a call. Its Message is the runtime's text, without the name
// of the call and the code, for statuses and events of pods.
type callError struct {
	op  string
	err error
}

// Error returns the text for logs: the name of the call and the runtime's text. Unwrap returns the
// error with the gRPC status, which code reads.
func (e *callError) Error() string   { return e.op + ": " + e.Message() }
func (e *callError) Unwrap() error   { return e.err }
func (e *callError) Message() string { return status.Convert(e.err).Message() }

// call makes one request with a deadline, counts it, and adds its name to the error. If timeout
// is 0 or negative, only ctx limits the request. After an error the answer is nil.
func call[Req, Resp any](ctx context.Context, c *Client, op string, timeout time.Duration,
	fn func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req, opts ...grpc.CallOption,
) (*Resp, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	start := time.Now()
	resp, err := fn(ctx, req, opts...)
	c.met.observe(op, start, err)
	if err != nil {
		return nil, &callError{op, shortened(err)}
	}
	return resp, nil
}
