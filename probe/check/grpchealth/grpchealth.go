// Package grpchealth checks a server by gRPC's health protocol (grpc.health.v1),
// like the kubelet's gRPC probes. It is a package of its own because gRPC weighs
// more than all other checks.
//
//	c := grpchealth.Check{Addr: "127.0.0.1:9000"}
//	outcome, output, err := c.Check(ctx)
//
// A check reads a limited number of bytes and ends with its context. The error is
// always nil: a server that does not answer is a failure.
//
// Tier: stable.
package grpchealth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/probe/check"
)

// limit is the maximum size of a message, of headers and of unread data from a server, in bytes.
// A health answer has a few bytes; this is the smallest window that gRPC accepts.
const limit = 64 << 10

// Check is a health check of one service.
type Check struct {
	Addr    string // host:port
	Service string // if "", the server itself is checked
	// UserAgent is prepended to gRPC's own.
	UserAgent string
	// Graceful closes the connection with a FIN instead of a reset.
	Graceful bool
}

// Check connects in plain text and calls the service before ctx ends. Only SERVING
// is a Success, anything else a Failure. It never returns an error. Answers and
// headers of more than 64 KiB are Failures.
func (c Check) Check(ctx context.Context) (check.Outcome, string, error) {
	start := time.Now()
	var to dialed
	conn, err := grpc.NewClient("passthrough:///"+c.Addr,
		grpc.WithUserAgent(c.UserAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(limit),
		grpc.WithStaticStreamWindowSize(limit),
		grpc.WithStaticConnWindowSize(limit),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := check.Dial(ctx, addr, c.Graceful)
			to.set(conn, err)
			return conn, err
		}),
	)
	if err != nil {
		return failure("error: failed to connect service %q: %v", c.Addr, err)
	}
	// gRPC lets a server that reads nothing hold up Close for 5 s.
	defer context.AfterFunc(ctx, to.hangUp)()
	defer func() { _ = conn.Close() }()
	if err := connect(ctx, conn); err != nil {
		err = cmp.Or(to.failure(), err)
		if ctx.Err() != nil {
			return failure("timeout: failed to connect service %q within %v: %v", c.Addr, since(start), err)
		}
		return failure("error: failed to connect service %q: %v", c.Addr, err)
	}
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: c.Service})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return failure("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message())
	case status.Code(err) == codes.DeadlineExceeded, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		// The second one is from hangUp, which may come before gRPC's own deadline.
		return failure("timeout: health rpc did not complete within %v", since(start))
	case err != nil:
		return failure("error: health rpc probe failed: %v", err)
	case resp.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		return failure("service unhealthy (responded with %q)", resp.GetStatus().String())
	}
	return check.Success, "service healthy", nil
}

// connect waits until the connection is established. It fails at the first refusal, without
// gRPC's retries.
func connect(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if s == connectivity.TransientFailure || s == connectivity.Shutdown {
			return fmt.Errorf("the connection is in state %s", s)
		}
		if !conn.WaitForStateChange(ctx, s) {
			return ctx.Err()
		}
	}
	return nil
}

// dialed keeps the last connection and the error of the last dial.
type dialed struct {
	mu   sync.Mutex
	conn net.Conn
	err  error
	over bool
}

func (d *dialed) set(conn net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn, d.err = conn, err
	if d.over && conn != nil {
		_ = conn.Close()
	}
}

// hangUp closes the connection and ends its calls.
func (d *dialed) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

func (d *dialed) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// failure returns a Failure with a text of at most check.MaxOutput bytes.
func failure(format string, args ...any) (check.Outcome, string, error) {
	out := fmt.Sprintf(format, args...)
	return check.Failure, strings.Clone(out[:min(len(out), check.MaxOutput)]), nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
