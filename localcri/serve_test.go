//go:build linux

package localcri

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/spdystream"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/internal/testrun"
)

const testImage = "localhost/nodewright/testbox:1"

// startServing serves a runtime for as long as the test runs.
func startServing(t *testing.T, cfg ServerConfig) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve") // the test's own may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	cfg.Socket = filepath.Join(dir, "cri.sock")
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testrun.Start(t, s.Run)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", cfg.Socket)
		if err == nil {
			_ = c.Close()
			return cfg.Socket
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func client(t *testing.T, socket string) *cri.Client {
	t.Helper()
	c, err := cri.New(cri.Config{Endpoint: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func plain(t *testing.T, socket string) runtimeapi.RuntimeServiceClient {
	t.Helper()
	c, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return runtimeapi.NewRuntimeServiceClient(c)
}

func fake() *critest.Runtime {
	rt := critest.New()
	rt.AddImage(testImage)
	return rt
}

// A runtime behind the socket is the runtime.
func TestConformance(t *testing.T) {
	rt := fake()
	c := client(t, startServing(t, ServerConfig{Runtime: rt, Images: rt}))
	critest.Conformance(t, critest.Subject{Runtime: c, Images: c, Image: testImage, Offer: func(name string) string {
		name = "localhost/" + name
		rt.OfferImage(name)
		return name
	}})
}

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := NewServer(ServerConfig{Socket: "x", StreamAddress: "0.0.0.0:0"})
	for _, want := range []string{"ServerConfig.Socket", "ServerConfig.Runtime", "ServerConfig.Images", "ServerConfig.StreamAddress"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v; want %s in it", err, want)
		}
	}
	for _, address := range []string{"localhost:0", "[::]:1", "10.0.0.1:1", "127.0.0.1"} {
		if _, err := NewServer(ServerConfig{Socket: "/x", Runtime: fake(), Images: fake(), StreamAddress: address}); err == nil {
			t.Errorf("StreamAddress %q is taken", address)
		}
	}
	if _, err := NewServer(ServerConfig{Socket: "/" + strings.Repeat("x", 107), Runtime: fake(), Images: fake()}); err == nil {
		t.Error("a path that no socket has is taken")
	}
}

func TestCallsBeforeRecoveryAreUnavailable(t *testing.T) {
	rt, ready := fake(), make(chan struct{})
	c := plain(t, startServing(t, ServerConfig{Runtime: rt, Images: rt, Ready: ready}))
	if _, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("before: %v", err)
	}
	s, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("events before: %v", err)
	}
	close(ready)
	if _, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
		t.Errorf("after: %v", err)
	}
}

func TestSocketIsOursAlone(t *testing.T) {
	rt := fake()
	socket := startServing(t, ServerConfig{Runtime: rt, Images: rt})
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	s, err := NewServer(ServerConfig{Socket: socket, Runtime: rt, Images: rt})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("a second server: %v", err)
	}
	if _, err := client(t, socket).Version(t.Context(), ""); err != nil {
		t.Errorf("the first one after that: %v", err)
	}
}

func TestStaleSocketIsReplacedAndAFileIsNot(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if got, err := listen(stale); err != nil {
		t.Errorf("a stale socket: %v", err)
	} else {
		_ = got.Close()
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(file); err == nil {
		t.Error("a file was replaced")
	}
	if err := os.Symlink(stale, filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(filepath.Join(dir, "l")); err == nil {
		t.Error("a link was replaced")
	}
}

// many is a runtime with more containers than a message holds.
type many struct {
	criapi.RuntimeService
	n, size int
}

func (m many) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var out []*runtimeapi.Container
	for i := range m.n {
		out = append(out, &runtimeapi.Container{Id: fmt.Sprint(i), Annotations: map[string]string{"x": strings.Repeat("x", m.size)}})
	}
	return out, nil
}

func (many) ExecSync(_ context.Context, _ string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
	switch cmd[0] {
	case "fail":
		return []byte("out"), []byte("err"), &ExitError{Code: 3}
	case "panic":
		panic("oh")
	case "late":
		return nil, nil, fmt.Errorf("waited %v: %w", timeout, context.DeadlineExceeded)
	}
	return nil, nil, errors.New("whatever")
}

func TestListsOfAnyLengthAreStreamed(t *testing.T) {
	rt := fake()
	c := plain(t, startServing(t, ServerConfig{Runtime: many{rt, 300, 100 << 10}, Images: rt})) // 30 MB
	if _, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a list of 30 MB: %v", err)
	}
	s, err := c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for {
		part, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(part.Containers) == 0 {
			t.Error("an empty message")
		}
		for _, c := range part.Containers {
			if c.Id != fmt.Sprint(seen) {
				t.Fatalf("container %s at %d", c.Id, seen)
			}
			seen++
		}
	}
	if seen != 300 {
		t.Errorf("%d containers", seen)
	}
}

func TestExecSync(t *testing.T) {
	rt := fake()
	c := plain(t, startServing(t, ServerConfig{Runtime: many{RuntimeService: rt}, Images: rt}))
	got, err := c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{Cmd: []string{"fail"}})
	if err != nil || got.ExitCode != 3 || string(got.Stdout) != "out" || string(got.Stderr) != "err" {
		t.Errorf("a command that fails: %v, %v", got, err)
	}
	for cmd, want := range map[string]codes.Code{"panic": codes.Internal, "late": codes.DeadlineExceeded, "other": codes.Unknown} {
		if _, err := c.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{Cmd: []string{cmd}, Timeout: 1<<63 - 1}); status.Code(err) != want {
			t.Errorf("%s: %v; want %v", cmd, err, want)
		}
	}
}

// A client is not told that it is heard before it is: what happens in between would be lost.
func TestEventsAreCollectedWhenTheClientIsTold(t *testing.T) {
	rt := fake()
	release := rt.Hang("GetContainerEvents")
	c := plain(t, startServing(t, ServerConfig{Runtime: rt, Images: rt}))
	events, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() {
		_, err := events.Header()
		told <- err
	}()
	select {
	case err := <-told:
		t.Errorf("told that it is heard while the runtime hangs: %v", err)
		told <- err
	case <-time.After(50 * time.Millisecond): // an answer on its way would come
	}
	release()
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// A server that ends does not wait for those who wait for events.
func TestEventsEndWithTheServer(t *testing.T) {
	rt := fake()
	s, err := NewServer(ServerConfig{Socket: filepath.Join(t.TempDir(), "s"), Runtime: rt, Images: rt})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c := plain(t, s.cfg.Socket)
	events, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil { // it is heard, and nothing has happened yet
		t.Fatal(err)
	}
	cancel()
	if _, err := events.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("Recv: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// echo is a container that says what it is told.
type echo struct {
	runtime criapi.RuntimeService // that the containers are of

	mu    sync.Mutex
	sizes []Size
	gone  chan struct{} // closed when a command named wait has lost its client
}

func (e *echo) Exec(ctx context.Context, id string, o ExecOptions) (int32, error) {
	switch o.Command[0] {
	case "wait":
		<-ctx.Done()
		close(e.gone)
		return 0, ctx.Err()
	case "panic":
		panic("oh")
	case "size":
		z := <-o.Resize
		e.mu.Lock()
		e.sizes = append(e.sizes, z)
		e.mu.Unlock()
		return 0, nil
	}
	b, err := io.ReadAll(o.Stdin)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(o.Stdout, "%s in %s", b, id)
	if o.Stderr != nil {
		fmt.Fprint(o.Stderr, "bad")
	}
	return 7, nil
}

func (e *echo) Attach(_ context.Context, id string, o AttachOptions) error {
	_, err := fmt.Fprintf(o.Stdout, "attached to %s", id)
	return err
}

func (e *echo) PortForward(_ context.Context, sandbox string, port int32, rw io.ReadWriteCloser) error {
	defer rw.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(rw, b); err != nil {
		return err
	}
	_, err := fmt.Fprintf(rw, "%s at %d of %s", b, port, sandbox[:4])
	return err
}

// streamed has a container that runs, behind a socket.
func streamed(t *testing.T) (c runtimeapi.RuntimeServiceClient, socket, sandbox, container string, e *echo) {
	t.Helper()
	rt := fake()
	e = &echo{gone: make(chan struct{}), runtime: rt}
	socket = startServing(t, ServerConfig{Runtime: rt, Images: rt, Streams: e})
	conf := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}, LogDirectory: t.TempDir()}
	sandbox, err := rt.RunPodSandbox(t.Context(), conf, "")
	if err != nil {
		t.Fatal(err)
	}
	container, err = rt.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: testImage}, Command: []string{"sleep", "1000"},
	}, conf)
	if err != nil {
		t.Fatal(err)
	}
	c = plain(t, socket)
	if _, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: container, Cmd: []string{"x"}, Stdout: true}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("exec before the start: %v", err)
	}
	if err := rt.StartContainer(t.Context(), container); err != nil {
		t.Fatal(err)
	}
	return c, socket, sandbox, container, e
}

// dial opens the connection of a streaming URL.
func dial(t *testing.T, to, protocol string) (*spdystream.Connection, int) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "tcp", u.Host
	switch {
	case u.Scheme == "unix" && u.Host == "":
		network, address = "unix", filepath.Dir(filepath.Dir(u.Path))
		u.Scheme, u.Host, to = "http", "localhost", "http://localhost"+u.Path
	case !strings.HasPrefix(u.Host, "127.0.0.1:") || u.Scheme != "http":
		t.Errorf("URL %s", to)
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := http.NewRequest(http.MethodPost, to, nil)
	q.Header.Set("Connection", "Upgrade")
	q.Header.Set("Upgrade", "SPDY/3.1")
	q.Header.Set("X-Stream-Protocol-Version", protocol)
	if err := q.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), q)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_ = conn.Close()
		return nil, resp.StatusCode
	}
	spdy, err := spdystream.NewConnection(conn, false)
	if err != nil {
		t.Fatal(err)
	}
	go spdy.Serve(spdystream.NoOpStreamHandler)
	t.Cleanup(func() { _ = spdy.Close() })
	return spdy, resp.StatusCode
}

func open(t *testing.T, c *spdystream.Connection, header http.Header) *spdystream.Stream {
	t.Helper()
	s, err := c.CreateStream(header, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	return s
}

func named(t *testing.T, c *spdystream.Connection, names ...string) map[string]*spdystream.Stream {
	t.Helper()
	out := map[string]*spdystream.Stream{}
	for _, n := range names {
		out[n] = open(t, c, http.Header{"Streamtype": {n}})
	}
	return out
}

func text(t *testing.T, s *spdystream.Stream) string {
	t.Helper()
	b, err := io.ReadAll(s)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// A program with the runtime in its own process has no port for its streams: a pod's host
// port could take it, and read the tokens.
func TestStreamsInTheProcessHaveASocketOfRootAlone(t *testing.T) {
	_, _, sandbox, id, e := streamed(t)
	dir, err := os.MkdirTemp("", "streams") // the test's own may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "state", "streams")
	s, err := NewStreaming(StreamingConfig{Socket: socket, Runtime: e.runtime, Streams: e})
	if err != nil {
		t.Fatal(err)
	}
	q := &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"cat"}, Stdin: true, Stdout: true}
	if _, err := s.Exec(t.Context(), q); status.Code(err) != codes.Unavailable {
		t.Errorf("exec before Run: %v", err)
	}
	stop := testrun.Start(t, s.Run)
	got, err := s.Exec(t.Context(), q)
	for ; status.Code(err) == codes.Unavailable; got, err = s.Exec(t.Context(), q) {
		time.Sleep(time.Millisecond)
	}
	if err != nil || !strings.HasPrefix(got.Url, "unix://"+socket+"/exec/") {
		t.Fatalf("exec: %v, %v", got, err)
	}
	if fi, err := os.Stat(socket); err != nil || fi.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v", fi, err)
	}
	conn, _ := dial(t, got.Url, "v4.channel.k8s.io")
	streams := named(t, conn, "error", "stdin", "stdout")
	_, _ = streams["stdin"].Write([]byte("hello"))
	_ = streams["stdin"].Close()
	if out := text(t, streams["stdout"]); out != "hello in "+id {
		t.Errorf("output %q", out)
	}
	if _, code := dial(t, got.Url, "v4.channel.k8s.io"); code != http.StatusNotFound {
		t.Errorf("the second use of a URL: %d", code)
	}
	attached, err := s.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, _ = dial(t, attached.Url, "v4.channel.k8s.io")
	if out := text(t, named(t, conn, "error", "stdout")["stdout"]); out != "attached to "+id {
		t.Errorf("output %q", out)
	}
	if forward, err := s.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox}); err != nil || !strings.HasPrefix(forward.Url, "unix://") {
		t.Errorf("port forward: %v, %v", forward, err)
	}
	stop()
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	for _, cfg := range []StreamingConfig{{Socket: "x", Runtime: e.runtime, Streams: e}, {Socket: socket}} {
		if _, err := NewStreaming(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestExecStreams(t *testing.T) {
	c, _, _, id, e := streamed(t)
	q := &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true}
	got, err := c.Exec(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := dial(t, got.Url, "v4.channel.k8s.io")
	s := named(t, conn, "error", "stdin", "stdout", "stderr")
	_, _ = s["stdin"].Write([]byte("hello"))
	_ = s["stdin"].Close()
	if out, bad, result := text(t, s["stdout"]), text(t, s["stderr"]), text(t, s["error"]); out != "hello in "+id || bad != "bad" || !strings.Contains(result, `"7"`) {
		t.Errorf("%q, %q, %q", out, bad, result)
	}
	if _, code := dial(t, got.Url, "v4.channel.k8s.io"); code != http.StatusNotFound {
		t.Errorf("the second use of a URL: %d", code)
	}
	if _, code := dial(t, got.Url[:len(got.Url)-8]+"xxxxxxxx", "v4.channel.k8s.io"); code != http.StatusNotFound {
		t.Errorf("a made-up URL: %d", code)
	}

	// The size of the terminal, and a panic, which is that command's.
	for _, cmd := range []string{"size", "panic"} {
		got, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{cmd}, Stdout: true, Tty: true})
		if err != nil {
			t.Fatal(err)
		}
		conn, _ := dial(t, got.Url, "v4.channel.k8s.io")
		s := named(t, conn, "error", "stdout", "resize")
		_, _ = s["resize"].Write([]byte(`{"Width":80,"Height":25}`))
		want := map[string]string{"size": `"Success"`, "panic": "panicked: oh"}[cmd]
		if result := text(t, s["error"]); !strings.Contains(result, want) {
			t.Errorf("%s: %s", cmd, result)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sizes) != 1 || e.sizes[0] != (Size{Width: 80, Height: 25}) {
		t.Errorf("sizes %v", e.sizes)
	}
}

// A command learns that its client has gone, though it reads and writes nothing.
func TestExecEndsWithItsClient(t *testing.T) {
	c, _, _, id, e := streamed(t)
	got, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"wait"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := dial(t, got.Url, "v4.channel.k8s.io")
	named(t, conn, "error", "stdout")
	_ = conn.Close()
	select {
	case <-e.gone:
	case <-time.After(time.Minute):
		t.Error("the command runs on")
	}
}

func TestAttachAndPortForwardStreams(t *testing.T) {
	c, _, sandbox, id, _ := streamed(t)
	a, err := c.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := dial(t, a.Url, "v4.channel.k8s.io")
	if out := text(t, named(t, conn, "error", "stdout")["stdout"]); out != "attached to "+id {
		t.Errorf("%q", out)
	}
	p, err := c.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: []int32{80}})
	if err != nil {
		t.Fatal(err)
	}
	conn, _ = dial(t, p.Url, "portforward.k8s.io")
	header := func(kind string) http.Header {
		return http.Header{"Streamtype": {kind}, "Port": {"80"}, "Requestid": {"1"}}
	}
	open(t, conn, header("error"))
	data := open(t, conn, header("data"))
	_, _ = data.Write([]byte("hello"))
	if got := text(t, data); got != "hello at 80 of "+sandbox[:4] {
		t.Errorf("%q", got)
	}
}

func TestStreamsThatAreRefused(t *testing.T) {
	c, _, sandbox, id, _ := streamed(t)
	for _, tt := range []struct {
		name string
		call func() error
		want codes.Code
	}{
		{"tty with stderr", func() error {
			_, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"x"}, Tty: true, Stdout: true, Stderr: true})
			return err
		}, codes.InvalidArgument},
		{"no stream", func() error {
			_, err := c.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id})
			return err
		}, codes.InvalidArgument},
		{"no container", func() error {
			_, err := c.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: "none", Cmd: []string{"x"}, Stdout: true})
			return err
		}, codes.NotFound},
		{"sandbox that ended", func() error {
			if _, err := c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
				return err
			}
			_, err := c.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: []int32{80}})
			return err
		}, codes.FailedPrecondition},
	} {
		if err := tt.call(); status.Code(err) != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, err, tt.want)
		}
	}
}

// Streams are served where the loopback interface has no IPv4.
func TestStreamsWithoutIPv4(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("makes a network namespace: needs root")
	}
	nspin.OnThread(func() (back bool) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return false
		}
		for _, args := range []string{"link set lo up", "address del 127.0.0.1/8 dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Logf("ip %s: %v: %s", args, err, out)
				return false
			}
		}
		l, err := listenLoopback("")
		if err != nil {
			t.Error(err)
			return false
		}
		if host, _, _ := net.SplitHostPort(l.Addr().String()); host != "::1" {
			t.Errorf("listens at %s, want ::1", l.Addr())
		}
		_ = l.Close()
		if l, err := listenLoopback("127.0.0.1:0"); err == nil {
			_ = l.Close()
			t.Error("an address that was asked for and is not there was replaced")
		}
		return false
	})
}

// crictl, where it was built, gets along with the server.
func TestCrictl(t *testing.T) {
	crictl, err := filepath.Abs("../build/bin/crictl")
	if _, statErr := os.Stat(crictl); err != nil || statErr != nil {
		testprogram.Missing(t, "needs build/bin/crictl: make tools")
	}
	_, socket, sandbox, id, _ := streamed(t)
	run := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(crictl, append([]string{"-r", "unix://" + socket, "-i", "unix://" + socket, "-t", "1m"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "RuntimeName"}, {[]string{"pods"}, sandbox[:10]}, {[]string{"ps"}, id[:10]}, {[]string{"images"}, "testbox"},
		{[]string{"inspect", id}, "CONTAINER_RUNNING"}, {[]string{"inspectp", sandbox}, "SANDBOX_READY"},
	} {
		if out, err := run("", tt.args...); err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("crictl %s: %v: %s", tt.args, err, out)
		}
	}
	out, err := run("hello", "exec", "-i", id, "cat")
	if err == nil || !strings.Contains(out, "hello in "+id) || !strings.Contains(out, "exit code 7") {
		t.Errorf("crictl exec: %v: %s", err, out)
	}
	if out, err := run("", "attach", id); err != nil || !strings.Contains(out, "attached to "+id) {
		t.Errorf("crictl attach: %v: %s", err, out)
	}
}
