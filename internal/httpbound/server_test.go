package httpbound_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// pipes is a listener whose connections take no time of a real network.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection of a host.
type from struct {
	net.Conn

	host byte
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, f.host), Port: 1} }

// client is the client's end of a connection.
type client struct {
	net.Conn

	in *bufio.Reader
}

// dial connects a host.
func (p *pipes) dial(host byte) *client {
	ours, theirs := net.Pipe()
	p.conns <- from{theirs, host}
	synctest.Wait()
	return &client{ours, bufio.NewReader(ours)}
}

// open reports whether the server has not closed the connection.
func (c *client) open() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.in.Peek(1)
	_ = c.SetReadDeadline(time.Time{})
	return err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func (c *client) ask(t *testing.T, path string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (c *client) answered(t *testing.T) {
	t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	synctest.Wait()
}

// inBubble serves until test has ended. Requests of /wait wait for release.
func inBubble(t *testing.T, cfg httpbound.Config, test func(t *testing.T, p *pipes, release chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, release := newPipes(), make(chan struct{})
		cfg.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-release
			}
		})
		s := httpbound.New(cfg)
		served := make(chan error)
		go func() { served <- s.Serve(p) }()
		test(t, p, release)
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func want(t *testing.T, what string, open bool, c *client) {
	t.Helper()
	synctest.Wait()
	if c.open() != open {
		t.Errorf("%s: open is %t, want %t", what, !open, open)
	}
}

// Connections without a request make room, those that never had one first; one with a request at work does not.
func TestConnectionsMakeRoom(t *testing.T) {
	inBubble(t, httpbound.Config{Connections: 8}, func(t *testing.T, p *pipes, release chan struct{}) {
		atWork := p.dial(1)
		atWork.ask(t, "/wait")
		idle, idleLater := p.dial(1), p.dial(1)
		for _, c := range []*client{idle, idleLater} {
			c.ask(t, "/")
			c.answered(t)
		}
		first, second := p.dial(1), p.dial(1) // 2 may be without a request so far
		third := p.dial(1)
		want(t, "the first of three newcomers", false, first)
		want(t, "the second", true, second)
		for range 3 {
			c := p.dial(1)
			c.ask(t, "/wait")
		}
		// 1 + 2 + 2 newcomers + 3 at work are 8.
		want(t, "one that had a request", true, idle)
		last := p.dial(1)
		want(t, "the oldest newcomer", false, second)
		third.ask(t, "/wait")
		last.ask(t, "/wait")
		p.dial(1).ask(t, "/wait")
		want(t, "the one that had no request for the longest time", false, idle)
		p.dial(1).ask(t, "/wait")
		want(t, "the one after it", false, idleLater)
		want(t, "one beyond those that are all at work", false, p.dial(1))
		want(t, "one at work", true, atWork)
		close(release)
		atWork.answered(t)
		want(t, "one after the work", true, p.dial(1))
	})
}

// A host has its own bound, and takes no place of others.
func TestConnectionsOfAHost(t *testing.T) {
	inBubble(t, httpbound.Config{Connections: 16, OfHost: 2}, func(t *testing.T, p *pipes, release chan struct{}) {
		other := p.dial(2)
		a, b := p.dial(1), p.dial(1)
		a.ask(t, "/wait")
		b.ask(t, "/wait")
		want(t, "a third of a host with two at work", false, p.dial(1))
		want(t, "another host's", true, other)
		close(release)
		a.answered(t)
		b.answered(t)
		want(t, "a third of a host with two idle", true, p.dial(1))
		if a.open() == b.open() {
			t.Errorf("of two idle ones of that host, open are %t and %t; want one", a.open(), b.open())
		}
		want(t, "another host's", true, other)
	})
}

// Whoever sends nothing has its time, and no more.
func TestSilentConnections(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "half of a head": "GET / HTTP/1.1\r\nX: "} {
		inBubble(t, httpbound.Config{Connections: 8}, func(t *testing.T, p *pipes, _ chan struct{}) {
			c := p.dial(1)
			if _, err := io.WriteString(c, sent); err != nil {
				t.Fatal(err)
			}
			time.Sleep(httpbound.HeadTime - time.Second)
			want(t, name+" before its time is over", true, c)
			go func() { _, _ = io.Copy(io.Discard, c.in) }()
			time.Sleep(2 * time.Second)
			if _, err := c.Write([]byte("x")); err == nil {
				t.Errorf("%s: the connection is open after %v", name, httpbound.HeadTime+time.Second)
			}
		})
	}
}

// A client that begins and resets requests without end has as many at work as one that does not, and no goroutines pile up.
func TestResets(t *testing.T) {
	var now, most atomic.Int64
	release := make(chan struct{})
	s := httpbound.New(httpbound.Config{Connections: 8, HTTP2: true, TLS: certificate(t), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release // whatever becomes of the request
		now.Add(-1)
	})})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	defer served.Wait()
	defer func() { _ = s.Close() }()
	defer close(release)
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: "/"}} {
		_ = enc.WriteField(h)
	}
	goAway := make(chan bool, 1)
	go func() {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				goAway <- false
				return
			}
			if _, ok := frame.(*http2.GoAwayFrame); ok {
				goAway <- true
				return
			}
		}
	}()
	for id := uint32(1); id < 4_000; id += 2 {
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true}) != nil ||
			f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break // the server has ended the connection
		}
	}
	if !<-goAway {
		t.Log("the connection ended without a GOAWAY that was read")
	}
	if n := most.Load(); n > 100 {
		t.Errorf("%d requests of one connection were at work; want at most 100", n)
	}
}

// certificate is a TLS configuration of a server.
func certificate(t *testing.T) *tls.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	return s.TLS.Clone()
}
