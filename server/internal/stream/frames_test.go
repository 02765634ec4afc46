package stream_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nodewright/nodewright/server/internal/runtimetest"
	"github.com/nodewright/nodewright/server/internal/stream"
)

// masked is a WebSocket frame of a client (RFC 6455, 5.2), with a mask of zeros.
func masked(first byte, payload string) []byte {
	return append([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
}

// fuzzStream sends bytes to a stream after a handshake, and fails if the stream
// does not end when the client has gone.
func fuzzStream(f *testing.F, handshake string) {
	f.Helper()
	rt := runtimetest.New()
	f.Cleanup(rt.Close)
	ended := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		_ = stream.Proxy(ctx, w, r, stream.Request{
			Kind: stream.Exec, Target: rt.Stream("exec", "stdin=1"), Translate: true, Streams: stream.Streams{Stdin: true, Stdout: true, TTY: false},
		})
		ended <- struct{}{}
	}))
	f.Cleanup(srv.Close)
	addr := srv.Listener.Addr().String()
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Skip(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, handshake, addr)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v; want a stream", resp, err)
		}
		_, _ = conn.Write(b)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, in)
			answer <- n
		}()
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%q: the stream has not ended", b)
		}
		conn.Close()
		// The command writes back what it reads, in frames of its own.
		if n := <-answer; n > int64(64*len(b)+(64<<10)) {
			t.Fatalf("%d bytes are answered to %d", n, len(b))
		}
	})
}

// Whatever frames a client sends, the stream ends with the client.
func FuzzWebSocketFrames(f *testing.F) {
	f.Add(masked(0x82, "\x00hello"))
	f.Add(bytes.Join([][]byte{masked(0x82, "\x00hello"), masked(0x82, "\xff\x00"), masked(0x88, "\x03\xe8")}, nil))
	f.Add(bytes.Join([][]byte{masked(0x02, "\x00he"), masked(0x89, "ping"), masked(0x80, "llo")}, nil))
	f.Add(masked(0x82, "\x04{\"Width\":1,\"Height\":2}"))
	f.Add(masked(0x82, ""))
	f.Add([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0})
	fuzzStream(f, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n")
}

// Whatever a client sends as SPDY, the tunnel to the runtime ends with the client.
func FuzzSPDYFrames(f *testing.F) {
	f.Add([]byte("\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01"))                 // a ping
	f.Add([]byte("\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00")) // a farewell
	f.Add([]byte("\x00\x00\x00\x01\x00\xff\xff\xff"))                                 // data of a stream that is not there
	f.Add([]byte("\x80\x03\x00\x01\x01\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"))
	fuzzStream(f, "POST / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
}
