package grpchealth_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/probe/check"
	"github.com/nodewright/nodewright/probe/check/grpchealth"
)

// server answers by the service that is asked for.
type server struct {
	healthpb.UnimplementedHealthServer
	slow func() // called when a client asks for the one that does not answer
}

func (s server) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st := healthpb.HealthCheckResponse_SERVING
	switch r.GetService() {
	case "":
	case "down":
		st = healthpb.HealthCheckResponse_NOT_SERVING
	case "slow":
		s.slow()
		<-ctx.Done() // of the client's deadline, which the server may see first
		return nil, status.FromContextError(ctx.Err()).Err()
	default:
		return nil, status.Error(codes.NotFound, "no such service")
	}
	return &healthpb.HealthCheckResponse{Status: st}, nil
}

// testTimeout is for a check that ends by itself, on a machine however busy.
const testTimeout = 2 * time.Minute

// deadline is a context whose deadline is over when a test says so.
type deadline struct {
	context.Context
	over chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func TestCheck(t *testing.T) {
	short := deadline{t.Context(), make(chan struct{})}
	health := serve(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, server{slow: func() { close(short.over) }}) })
	other := serve(t, func(*grpc.Server) {})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, c := range []struct {
		name, addr, service string
		ctx                 context.Context // nil for one with testTimeout
		want                check.Outcome
		output              string // its beginning
	}{
		{name: "serving", addr: health, want: check.Success, output: "service healthy"},
		{name: "not serving", addr: health, service: "down", want: check.Failure, output: `service unhealthy (responded with "NOT_SERVING")`},
		{name: "slow", addr: health, service: "slow", ctx: short, want: check.Failure, output: "timeout: health rpc did not complete within"},
		{name: "unknown service", addr: health, service: "x", want: check.Failure, output: "error: health rpc probe failed"},
		{name: "no health protocol", addr: other, want: check.Failure, output: "error: this server does not implement the grpc health protocol"},
		{name: "closed", addr: closed.Addr().String(), want: check.Failure, output: "error: failed to connect"},
		{name: "unknown host", addr: "name.invalid:1", want: check.Failure, output: "error: failed to connect"},
		{name: "mute", addr: mute.Addr().String(), ctx: brief, want: check.Failure, output: "timeout: failed to connect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil {
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				defer cancel()
				c.ctx = ctx
			}
			o, out, err := grpchealth.Check{Addr: c.addr, Service: c.service}.Check(c.ctx)
			if o != c.want || !strings.HasPrefix(out, c.output) || err != nil {
				t.Errorf("%v, %q, %v; want %v, %q", o, out, err, c.want, c.output)
			}
		})
	}
}
