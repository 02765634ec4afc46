// Package runtimetest is the streaming server of a container runtime, for tests. Like
// containerd's, it supports SPDY/3.1 with v4.channel.k8s.io and portforward.k8s.io, and WebSocket
// with v4.channel.k8s.io, but not v5.
package runtimetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream"
)

// Success is the status of a successful command.
const Success = `{"metadata":{},"status":"Success"}`

// Failure is the status of a command that ended with exit code 3.
const Failure = `{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`

// Server copies stdin to stdout, then writes "bye" to stderr if that is requested, and then sends
// its status, initially Success. Its port forwarding echoes.
type Server struct {
	*httptest.Server

	mu      sync.Mutex
	status  string
	headers []http.Header
	resized []byte
}

// New starts a Server on the loopback interface. The caller closes it.
func New() *Server {
	s := &Server{status: Success}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/", s.command)
	mux.HandleFunc("/portforward/", s.forward)
	mux.HandleFunc("/redirect/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/exec/x", http.StatusFound)
	})
	mux.HandleFunc("/refuse/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such token", http.StatusNotFound)
	})
	mux.HandleFunc("/silent/", func(w http.ResponseWriter, _ *http.Request) { // ends without a status
		conn := hijack(w, "v4.channel.k8s.io")
		time.Sleep(10 * time.Millisecond)
		_ = conn.Close()
	})
	s.Server = httptest.NewServer(mux)
	return s
}

// End sets the status that later exec and attach commands send at their end. It is Success or
// Failure.
func (s *Server) End(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (s *Server) how() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Stream returns the URL of a stream of this kind, such as "exec". q is the query of the URL,
// such as stdin=1&stderr=1&tty=1.
func (s *Server) Stream(kind, q string) string { return s.Server.URL + "/" + kind + "/token?" + q }

// Headers returns the headers of the requests so far.
func (s *Server) Headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headers
}

// Resized returns the data of the resize stream.
func (s *Server) Resized() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.resized)
}

func hijack(w http.ResponseWriter, protocol string) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n", protocol)
	return conn
}

// command serves exec and attach.
func (s *Server) command(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.headers = append(s.headers, r.Header.Clone())
	s.mu.Unlock()
	want := map[string]bool{"error": true, "stdout": true}
	for _, name := range []string{"stdin", "stderr"} {
		want[name] = r.URL.Query().Get(name) == "1"
	}
	want["resize"] = r.URL.Query().Get("tty") == "1"
	if websocket.IsWebSocketUpgrade(r) {
		s.overWebSocket(w, r, want)
		return
	}
	conn := hijack(w, "v4.channel.k8s.io")
	defer func() { _ = conn.Close() }()
	spdy, err := spdystream.NewConnection(conn, true)
	if err != nil {
		return
	}
	type named struct {
		name   string
		stream *spdystream.Stream
	}
	opened := make(chan named, 8)
	go spdy.Serve(func(st *spdystream.Stream) {
		_ = st.SendReply(http.Header{}, false)
		opened <- named{st.Headers().Get("Streamtype"), st}
	})
	streams := map[string]*spdystream.Stream{}
	for name, there := range want {
		if there {
			_ = name
			select {
			case n := <-opened:
				streams[n.name] = n.stream
			case <-spdy.CloseChan(): // the client has disconnected, or sent invalid data
				return
			}
		}
	}
	var resizing sync.WaitGroup
	if st := streams["resize"]; st != nil {
		resizing.Go(func() {
			line, _ := bufio.NewReader(st).ReadString('}')
			s.mu.Lock()
			s.resized = append(s.resized, line...)
			s.mu.Unlock()
		})
	}
	if st := streams["stdin"]; st != nil {
		_, _ = io.Copy(streams["stdout"], st)
	}
	resizing.Wait()
	_ = streams["stdout"].Close()
	if st := streams["stderr"]; st != nil {
		_, _ = io.WriteString(st, "bye")
		_ = st.Close()
	}
	_, _ = io.WriteString(streams["error"], s.how())
	_ = streams["error"].Close()
	_ = spdy.CloseWait()
}

func (s *Server) overWebSocket(w http.ResponseWriter, r *http.Request, want map[string]bool) {
	up := websocket.Upgrader{Subprotocols: []string{"v4.channel.k8s.io"}, CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.Close() }()
	if want["stdin"] { // one message, since v4 cannot signal the end
		if _, b, err := ws.ReadMessage(); err == nil {
			_ = ws.WriteMessage(websocket.BinaryMessage, append([]byte{1}, b[1:]...))
		}
	}
	if want["stderr"] {
		_ = ws.WriteMessage(websocket.BinaryMessage, []byte("\x02bye"))
	}
	_ = ws.WriteMessage(websocket.BinaryMessage, append([]byte{3}, s.how()...))
	_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

// forward echoes the data of each data stream, after the port's number.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.headers = append(s.headers, r.Header.Clone())
	s.mu.Unlock()
	conn := hijack(w, "portforward.k8s.io")
	defer func() { _ = conn.Close() }()
	spdy, err := spdystream.NewConnection(conn, true)
	if err != nil {
		return
	}
	spdy.Serve(func(st *spdystream.Stream) {
		_ = st.SendReply(http.Header{}, false)
		if st.Headers().Get("Streamtype") != "data" {
			go func() {
				_, _ = io.Copy(io.Discard, st)
				_ = st.Close()
			}()
			return
		}
		go func() {
			_, _ = io.WriteString(st, st.Headers().Get("Port")+":")
			_, _ = io.Copy(st, st)
			_ = st.Close()
		}()
	})
}
