package stream_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream"

	"github.com/nodewright/nodewright/server/internal/runtimetest"
	"github.com/nodewright/nodewright/server/internal/stream"
)

// front serves one kind of stream, and says how it ended.
type front struct {
	*httptest.Server
	ended chan error
}

func serve(t *testing.T, q stream.Request) *front {
	t.Helper()
	f := &front{ended: make(chan error, 8)}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.ended <- stream.Proxy(r.Context(), w, r, q)
	}))
	t.Cleanup(f.Close)
	return f
}

func newRuntime(t *testing.T) *runtimetest.Server {
	t.Helper()
	rt := runtimetest.New()
	t.Cleanup(rt.Close)
	return rt
}

// dialSPDY upgrades a connection as the API server does.
func (f *front) dialSPDY(t *testing.T, protocol string, header http.Header) (*spdystream.Connection, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	req, err := http.NewRequest(http.MethodPost, f.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "SPDY/3.1")
	req.Header.Set("X-Stream-Protocol-Version", protocol)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, resp
	}
	spdy, err := spdystream.NewConnection(conn, false)
	if err != nil {
		t.Fatal(err)
	}
	go spdy.Serve(spdystream.NoOpStreamHandler)
	return spdy, resp
}

func open(t *testing.T, c *spdystream.Connection, header http.Header) *spdystream.Stream {
	t.Helper()
	s, err := c.CreateStream(header, nil, false)
	if err == nil {
		err = s.WaitTimeout(10 * time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExecOverSPDY(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1&stderr=1"), Translate: true})
	spdy, resp := f.dialSPDY(t, "v4.channel.k8s.io", http.Header{"Authorization": {"Bearer secret"}, "Cookie": {"secret"}, "X-Forwarded-For": {"1.2.3.4"}})
	if got := resp.Header.Get("X-Stream-Protocol-Version"); got != "v4.channel.k8s.io" {
		t.Errorf("protocol %q", got)
	}
	streams := map[string]*spdystream.Stream{}
	for _, name := range []string{"error", "stdin", "stdout", "stderr"} {
		streams[name] = open(t, spdy, http.Header{"Streamtype": {name}})
	}
	_, _ = io.WriteString(streams["stdin"], "hello")
	_ = streams["stdin"].Close()
	for name, want := range map[string]string{"stdout": "hello", "stderr": "bye", "error": runtimetest.Success} {
		if got := readAll(t, streams[name]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	_ = spdy.Close()
	if err := <-f.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	for name := range rt.Headers()[0] {
		if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "X-Forwarded") {
			t.Errorf("the runtime was told %s", name)
		}
	}
}

func (f *front) dialWS(t *testing.T, protocols ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: 10 * time.Second}
	ws, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(f.URL, "http"), nil)
	if ws != nil {
		t.Cleanup(func() { _ = ws.Close() })
	}
	return ws, resp, err
}

// channels reads a remote command to its end, by channel.
func channels(ws *websocket.Conn) (map[byte]string, error) {
	var bufs [256]bytes.Buffer
	for {
		_, b, err := ws.ReadMessage()
		if err != nil {
			out := map[byte]string{}
			for i := range bufs {
				if bufs[i].Len() > 0 {
					out[byte(i)] = bufs[i].String()
				}
			}
			if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				err = nil
			}
			return out, err
		}
		if len(b) > 0 {
			bufs[b[0]].Write(b[1:])
		}
	}
}

func TestExecOverWebSocketV4(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1&stderr=1"), Translate: true})
	ws, _, err := f.dialWS(t, "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	_ = ws.WriteMessage(websocket.BinaryMessage, []byte("\x00hello"))
	got, err := channels(ws)
	if want := fmt.Sprint(map[byte]string{1: "hello", 2: "bye", 3: runtimetest.Success}); err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if rt.Headers()[0].Get("Upgrade") != "websocket" {
		t.Errorf("not passed through: %v", rt.Headers()[0])
	}
}

// v5 ends here and is SPDY for the runtime.
func TestExecOverWebSocketV5(t *testing.T) {
	for _, status := range []string{runtimetest.Success, runtimetest.Failure} {
		rt := newRuntime(t)
		rt.End(status)
		f := serve(t, stream.Request{
			Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1&stderr=1"), Translate: true,
			Streams: stream.Streams{Stdin: true, Stdout: true, Stderr: true},
		})
		ws, _, err := f.dialWS(t, "v5.channel.k8s.io")
		if err != nil {
			t.Fatal(err)
		}
		if ws.Subprotocol() != "v5.channel.k8s.io" {
			t.Errorf("protocol %q", ws.Subprotocol())
		}
		big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
		for _, msg := range []string{"", "\x00", "\x00hello ", "\x09unknown", "\x00" + big, "\xff\x00"} {
			if err := ws.WriteMessage(websocket.BinaryMessage, []byte(msg)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := channels(ws)
		if err != nil || got[1] != "hello "+big || got[2] != "bye" || got[3] != status {
			t.Errorf("%d bytes of output, %q, %q, %v", len(got[1]), got[2], got[3], err)
		}
		if err := <-f.ended; err != nil {
			t.Errorf("ended with %v", err)
		}
		if h := rt.Headers()[0]; h.Get("Upgrade") != "SPDY/3.1" || h.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
			t.Errorf("the runtime was asked for %v", h)
		}
	}
}

func TestTerminalOverWebSocketV5(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{
		Kind: stream.Attach, Target: rt.Stream("exec", "stdin=1&tty=1"), Translate: true,
		Streams: stream.Streams{Stdin: true, Stdout: true, Stderr: true, TTY: true},
	})
	ws, _, err := f.dialWS(t, "v5.channel.k8s.io", "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range []string{"\x04{\"Width\":80,\"Height\":24}", "\x00ls\r", "\xff\x00"} {
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte(msg)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := channels(ws); err != nil || got[1] != "ls\r" || got[3] != runtimetest.Success {
		t.Errorf("%v, %v", got, err)
	}
	if got, want := rt.Resized(), `{"Width":80,"Height":24}`; got != want {
		t.Errorf("resized %q, want %q", got, want)
	}
}

// With the feature off it is the runtime's to refuse v5.
func TestV5IsNotNegotiatedWithTheFeatureOff(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{Kind: stream.Exec, Target: rt.Stream("exec", "")})
	ws, _, err := f.dialWS(t, "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if got := ws.Subprotocol(); got != "" {
		t.Errorf("negotiated %q", got)
	}
}

// A client that leaves takes the runtime's stream with it.
func TestClientLeaves(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{
		Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1"), Translate: true, Streams: stream.Streams{Stdin: true, Stdout: true},
	})
	ws, _, err := f.dialWS(t, "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	_ = ws.UnderlyingConn().Close()
	if err := <-f.ended; err == nil {
		t.Error("no error")
	}
}

// What a client did not take before it left holds up nobody.
func TestClientLeavesWithOutputPending(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{
		Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1"), Translate: true, Streams: stream.Streams{Stdin: true, Stdout: true},
	})
	ws, _, err := f.dialWS(t, "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	part := append([]byte{0}, bytes.Repeat([]byte("x"), 64<<10)...)
	for range 16 {
		if err := ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
			t.Fatal(err)
		}
	}
	_ = ws.UnderlyingConn().Close()
	if err := <-f.ended; err == nil {
		t.Error("no error")
	}
}

func TestRuntimeBreaksOff(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{Kind: stream.Exec, Target: rt.Stream("silent", ""), Translate: true, Streams: stream.Streams{Stdout: true}})
	ws, resp, err := f.dialWS(t, "v5.channel.k8s.io")
	if err != nil {
		if resp == nil || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("%v, %v", resp, err)
		}
		return
	}
	if got, err := channels(ws); err == nil {
		t.Errorf("%v and no error", got)
	}
}

func TestPortForwardOverSPDY(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{Kind: stream.PortForward, Target: rt.Stream("portforward", ""), Translate: true})
	spdy, resp := f.dialSPDY(t, "portforward.k8s.io", nil)
	if got := resp.Header.Get("X-Stream-Protocol-Version"); got != "portforward.k8s.io" {
		t.Errorf("protocol %q", got)
	}
	echo(t, spdy)
}

func echo(t *testing.T, spdy *spdystream.Connection) {
	t.Helper()
	_ = open(t, spdy, http.Header{"Streamtype": {"error"}, "Port": {"80"}, "Requestid": {"0"}}).Close()
	data := open(t, spdy, http.Header{"Streamtype": {"data"}, "Port": {"80"}, "Requestid": {"0"}})
	_, _ = io.WriteString(data, "hello")
	_ = data.Close()
	if got := readAll(t, data); got != "80:hello" {
		t.Errorf("%q", got)
	}
	_ = spdy.Close()
}

// wsConn is a connection within WebSocket messages, as kubectl makes it.
type wsConn struct {
	*websocket.Conn
	r io.Reader
}

func (c *wsConn) Read(p []byte) (int, error) {
	for {
		if c.r == nil {
			var err error
			if _, c.r, err = c.NextReader(); err != nil {
				return 0, io.EOF
			}
		}
		n, err := c.r.Read(p)
		if errors.Is(err, io.EOF) {
			c.r, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *wsConn) Write(p []byte) (int, error) {
	return len(p), c.WriteMessage(websocket.BinaryMessage, p)
}

func (c *wsConn) SetDeadline(time.Time) error { return nil }

func TestPortForwardInATunnel(t *testing.T) {
	rt := newRuntime(t)
	f := serve(t, stream.Request{Kind: stream.PortForward, Target: rt.Stream("portforward", ""), Translate: true})
	ws, _, err := f.dialWS(t, "SPDY/3.1+portforward.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if ws.Subprotocol() != "SPDY/3.1+portforward.k8s.io" {
		t.Errorf("protocol %q", ws.Subprotocol())
	}
	spdy, err := spdystream.NewConnection(&wsConn{Conn: ws}, false)
	if err != nil {
		t.Fatal(err)
	}
	go spdy.Serve(spdystream.NoOpStreamHandler)
	echo(t, spdy)
	if err := <-f.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// What is no upgrade is shown as what it is, and no redirect reaches anybody.
func TestNoUpgrade(t *testing.T) {
	rt := newRuntime(t)
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, tc := range []struct {
		name, target string
		code         int
		text         string
	}{
		{"redirect", rt.Stream("redirect", ""), 502, "302 Found"},
		{"refused", rt.Stream("refuse", ""), 404, "no such token"},
		{"gone", gone.URL, 502, "refused"},
		{"elsewhere", "http://192.0.2.1:10010/exec/x", 500, "loopback"},
		{"a name", "http://runtime.example/exec/x", 500, "loopback"},
		{"the node's own address", "http://0.0.0.0:1/exec/x", 500, "loopback"},
		{"mapped", "http://[::ffff:192.0.2.1]/exec/x", 500, "loopback"},
		{"a host in the user's place", "http://127.0.0.1@192.0.2.1/x", 500, "user"},
		{"no host", "/exec/x", 500, "scheme"},
		{"file", "file:///etc/passwd", 500, "scheme"},
		{"nothing", "", 500, "scheme"},
		{"garbage", "http://[", 500, "missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := serve(t, stream.Request{Kind: stream.Exec, Target: tc.target, Translate: true})
			for _, ws := range []bool{false, true} {
				var resp *http.Response
				if ws {
					_, resp, _ = f.dialWS(t, "v5.channel.k8s.io")
				} else {
					_, resp = f.dialSPDY(t, "v4.channel.k8s.io", nil)
				}
				text, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != tc.code || !strings.Contains(string(text), tc.text) || resp.Header.Get("Location") != "" {
					t.Errorf("WebSocket %v: %d %q, Location %q; want %d %q", ws, resp.StatusCode, text, resp.Header.Get("Location"), tc.code, tc.text)
				}
				if err := <-f.ended; err == nil {
					t.Error("no error")
				}
			}
		})
	}
}

func TestPlainRequest(t *testing.T) {
	f := serve(t, stream.Request{Kind: stream.Exec})
	resp, err := http.Get(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%d, want 400", resp.StatusCode)
	}
	<-f.ended
}

// A stream ends with its context.
func TestStreamsEndWithTheirContext(t *testing.T) {
	for _, protocol := range []string{"v4.channel.k8s.io", "v5.channel.k8s.io"} {
		rt := newRuntime(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ended <- stream.Proxy(ctx, w, r, stream.Request{
				Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1"), Translate: true, Streams: stream.Streams{Stdin: true, Stdout: true},
			})
		}))
		t.Cleanup(f.Close)
		ws, _, err := (&front{Server: f}).dialWS(t, protocol)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-ended
		if got, err := channels(ws); err == nil {
			t.Errorf("%s: %v and no error", protocol, got)
		}
	}
}

// A runtime in the agent's own process has a unix socket.
func TestExecOverAUnixSocket(t *testing.T) {
	rt := newRuntime(t)
	dir, err := os.MkdirTemp("", "stream") // the test's own may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "streams")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.StripPrefix(socket, rt.Config.Handler)}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	f := serve(t, stream.Request{Kind: stream.Exec, Target: "unix://" + socket + "/exec/token?stdin=1&stderr=1", Translate: true})
	spdy, _ := f.dialSPDY(t, "v4.channel.k8s.io", nil)
	streams := map[string]*spdystream.Stream{}
	for _, name := range []string{"error", "stdin", "stdout", "stderr"} {
		streams[name] = open(t, spdy, http.Header{"Streamtype": {name}})
	}
	_, _ = io.WriteString(streams["stdin"], "hello")
	_ = streams["stdin"].Close()
	for name, want := range map[string]string{"stdout": "hello", "stderr": "bye", "error": runtimetest.Success} { // a stream that is not read keeps the connection
		if got := readAll(t, streams[name]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	_ = spdy.Close()
	if err := <-f.ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// Whatever a runtime answers as a URL, nothing but the loopback and sockets of this
// machine are dialled.
func FuzzTarget(f *testing.F) {
	f.Add("http://127.0.0.1:1/exec/x")
	f.Add("https://[::1]/x")
	f.Add("http://127.1/")
	f.Add("unix:///run/x/streams/exec/token")
	f.Add("unix://host/exec/token")
	f.Fuzz(func(t *testing.T, raw string) {
		network, addr, err := stream.Addr(raw)
		if err != nil {
			return
		}
		if network == "unix" {
			if !filepath.IsAbs(addr) || filepath.Clean(addr) != addr {
				t.Errorf("%q leads to %q", raw, addr)
			}
			return
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil || !net.ParseIP(host).IsLoopback() {
			t.Errorf("%q leads to %q", raw, addr)
		}
		if u, err := url.Parse(raw); err != nil || u.User != nil {
			t.Errorf("%q names a user or is none", raw)
		}
	})
}
