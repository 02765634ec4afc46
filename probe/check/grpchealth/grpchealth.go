// Package grpchealth checks a server by gRPC's health protocol
// (grpc.health.v1), as the kubelet's gRPC probes do. It is a package of its
// own because gRPC weighs more than everything else that makes checks.
//
//	c := grpchealth.Check{Addr: "127.0.0.1:9000"}
//	outcome, output, _ := c.Check(ctx)
package grpchealth

import (
	"cmp"
	"context"
	"fmt"
	"net"
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

// Check asks one server about one service.
type Check struct {
	Addr    string // host:port
	Service string // "" is the server itself
	// UserAgent stands before gRPC's own.
	UserAgent string
	// Graceful ends the connection in order and not with a reset.
	Graceful bool
}

// Check connects in plain text and asks; both have to be done before ctx
// ends. Only SERVING is a Success, anything else a Failure. It never returns
// an error.
func (c Check) Check(ctx context.Context) (check.Outcome, string, error) {
	start := time.Now()
	var refused lastError
	conn, err := grpc.NewClient("passthrough:///"+c.Addr,
		grpc.WithUserAgent(c.UserAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := check.Dial(ctx, addr, c.Graceful)
			refused.set(err)
			return conn, err
		}),
	)
	if err != nil {
		return failure("error: failed to connect service %q: %v", c.Addr, err)
	}
	defer func() { _ = conn.Close() }()
	if err := connect(ctx, conn); err != nil {
		err = cmp.Or(refused.get(), err)
		if ctx.Err() != nil {
			return failure("timeout: failed to connect service %q within %v: %v", c.Addr, since(start), err)
		}
		return failure("error: failed to connect service %q: %v", c.Addr, err)
	}
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: c.Service})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return failure("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message())
	case status.Code(err) == codes.DeadlineExceeded:
		return failure("timeout: health rpc did not complete within %v", since(start))
	case err != nil:
		return failure("error: health rpc probe failed: %v", err)
	case resp.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		return failure("service unhealthy (responded with %q)", resp.GetStatus().String())
	}
	return check.Success, "service healthy", nil
}

// connect waits until the connection stands. It fails at the first refusal: a
// check is made again soon enough.
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

// lastError keeps why the last dial failed, which gRPC tells only to calls.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func failure(format string, args ...any) (check.Outcome, string, error) {
	return check.Failure, fmt.Sprintf(format, args...), nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }
