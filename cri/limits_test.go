package cri_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/probe/check"
)

// talkative is a runtime that answers with more than anybody wants.
type talkative struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	connections atomic.Int32
	output      atomic.Int64
}

func (s *talkative) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: strings.Repeat("n", 1<<20), RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (s *talkative) ExecSync(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{Stdout: make([]byte, s.output.Load())}, nil
}

func (s *talkative) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"a": strings.Repeat("x", 8<<20)}}, nil
}

// ListContainers answers with a million containers and more of two bytes each.
func (s *talkative) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	resp := &runtimeapi.ListContainersResponse{}
	resp.ProtoReflect().SetUnknown(bytes.Repeat([]byte{1<<3 | 2, 0}, 1_100_000)) // field 1, of no bytes
	return resp, nil
}

func (s *talkative) client(t *testing.T) *cri.Client {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(grpc.MaxSendMsgSize(1 << 30))
	runtimeapi.RegisterRuntimeServiceServer(srv, s)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	c, err := cri.New(cri.Config{Endpoint: "/x", Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		s.connections.Add(1)
		return l.DialContext(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Output that is too large is a failed check that says so; the connection and
// the calls beside it are not touched.
func TestOutputOfCommandsIsBounded(t *testing.T) {
	s := &talkative{}
	c := s.client(t)
	exec := func() ([]byte, error) {
		out, _, err := c.ExecSync(t.Context(), "id", []string{"x"}, time.Second)
		return out, err
	}
	for _, tc := range []struct {
		output  int64
		refused bool
	}{{0, false}, {10 << 10, false}, {255 << 10, false}, {257 << 10, true}, {16 << 20, true}, {100, false}} {
		s.output.Store(tc.output)
		out, err := exec()
		large := (*cri.OutputError)(nil)
		if errors.As(err, &large) != tc.refused || !tc.refused && (err != nil || int64(len(out)) != tc.output) {
			t.Errorf("output of %d bytes: %d bytes, %v", tc.output, len(out), err)
		}
	}
	s.output.Store(16 << 20)
	o, reason, err := check.Exec{Command: []string{"x"}, Run: func(context.Context, []string, time.Duration) ([]byte, error) { return exec() }}.Check(t.Context())
	if o != check.Failure || err != nil || !strings.Contains(reason, "OutputTooLarge") {
		t.Errorf("check: %v %q %v", o, reason, err)
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// As many commands as like may end at once.
func TestManyOutputsAtOnce(t *testing.T) {
	s := &talkative{}
	s.output.Store(200 << 10)
	c := s.client(t)
	var wg sync.WaitGroup
	var bad atomic.Int32
	for range 200 {
		wg.Go(func() {
			if out, _, err := c.ExecSync(t.Context(), "id", []string{"x"}, time.Hour); err != nil || len(out) != 200<<10 {
				bad.Add(1)
			}
		})
	}
	wg.Wait()
	if n := bad.Load(); n > 0 {
		t.Errorf("%d of 200 failed", n)
	}
}

func (s *talkative) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	size, _ := strconv.Atoi(req.GetPodSandboxId())
	return nil, status.Error(codes.NotFound, "no "+strings.Repeat("x", size))
}

// What is kept of a failure's message is short, however long it is; its code
// stays as long as the message is one that a runtime could mean.
func TestErrorsAreBounded(t *testing.T) {
	c := (&talkative{}).client(t)
	for _, size := range []int{10, 4 << 10, 100 << 10, 300 << 10, 8 << 20} {
		_, err := c.PodSandboxStatus(t.Context(), strconv.Itoa(size), false)
		if err == nil || len(err.Error()) > 5<<10 {
			t.Errorf("message of %d bytes: an error of %d", size, len(fmt.Sprint(err)))
		}
		if size <= 100<<10 && (!cri.IsNotFound(err) || !strings.Contains(err.Error(), "no xxx")) {
			t.Errorf("message of %d bytes: %.200v", size, err)
		}
	}
}

// What the runtime said is known without the call's name and code.
func TestMessageOfFailedCall(t *testing.T) {
	_, err := (&talkative{}).client(t).PodSandboxStatus(t.Context(), "2", false)
	var said interface{ Message() string }
	if !errors.As(err, &said) || said.Message() != "no xx" {
		t.Errorf("got %v, want the message alone", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := (&talkative{}).client(t)
	if _, err := c.ListContainers(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "too many objects") {
		t.Errorf("a list of a million empty containers: %v", err)
	}
	if _, err := c.ContainerStatus(t.Context(), "id", true); err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("a status of 8 MiB: %v", err)
	}
}
