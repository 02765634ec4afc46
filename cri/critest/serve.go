package critest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/criserver"
)

// Client serves the runtime over gRPC in memory and returns a client of it.
// Both end with the test.
func (r *Runtime) Client(t testing.TB) *cri.Client {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	t.Cleanup(r.Serve(l))
	c, err := cri.New(cri.Config{
		Endpoint: "/bufconn",
		Dialer:   func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Serve serves the runtime over gRPC until stop is called. With interceptors in opts a test can
// change answers, to simulate a runtime that returns wrong ones.
func (r *Runtime) Serve(l net.Listener, opts ...grpc.ServerOption) (stop func()) {
	srv := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(256 << 20), grpc.MaxSendMsgSize(256 << 20)}, opts...)...)
	criserver.Register(srv, r, r, nil)
	go func() { _ = srv.Serve(l) }()
	return srv.Stop
}
