package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/server"
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

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial connects, and the connection ends with the test at the latest.
func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	p.conns <- theirs
	t.Cleanup(func() { _ = ours.Close() })
	return ours
}

// clientOf speaks TLS to a node.
func clientOf(c net.Conn) net.Conn { return tls.Client(c, &tls.Config{InsecureSkipVerify: true}) }

// inBubble runs a Server of which no time is real.
func inBubble(t *testing.T, change func(*server.Config), test func(t *testing.T, main, healthz *pipes)) {
	t.Helper()
	certs, err := server.NewCerts(server.CertsConfig{CertDir: t.TempDir(), Host: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	c := whole(t)
	change(&c)
	synctest.Test(t, func(t *testing.T) {
		main, healthz := newPipes(), newPipes()
		c.Main, c.Healthz, c.Port, c.TLS = main, healthz, 0, certs.TLS()
		s, err := server.New(c)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, s.Run)
		test(t, main, healthz)
		stop()
	})
}

// ends is how long it takes until the other side ends a connection, to which a
// byte is written each second if drip is not 0.
func ends(t *testing.T, conn net.Conn, drip byte) time.Duration {
	t.Helper()
	began, gone := time.Now(), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	}()
	for range 3600 {
		select {
		case <-gone:
			return time.Since(began)
		case <-time.After(time.Second):
		}
		if drip != 0 {
			_, _ = conn.Write([]byte{drip})
		}
	}
	t.Fatal("the connection is still open after an hour")
	return 0
}

// Whoever sends slowly, or nothing, holds a connection for a bounded time.
func TestSlowClients(t *testing.T) {
	for _, tc := range []struct {
		name   string
		health bool // on the port without TLS
		head   string
		drip   byte
		least  time.Duration
		most   time.Duration
	}{
		{"nothing", true, "", 0, 10 * time.Second, 11 * time.Second},
		{"head that does not end", true, "GET /healthz HTTP/1.1\r\nX-A: ", 'a', 10 * time.Second, 11 * time.Second},
		{"between requests", true, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 0, 90 * time.Second, 91 * time.Second},
		{"no handshake", false, "", 0, 10 * time.Second, 11 * time.Second},
		{"head that does not end, over TLS", false, "GET /pods HTTP/1.1\r\nX-A: ", 'a', 10 * time.Second, 11 * time.Second},
		{"body that does not end", false, "POST /stats/summary HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\n", 'a', 10 * time.Second, 12 * time.Second},
		{"body that nobody reads", false, "GET /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", 'a', 40 * time.Second, 42 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(*server.Config) {}, func(t *testing.T, main, healthz *pipes) {
				var conn net.Conn
				if tc.health {
					conn = healthz.dial(t)
				} else {
					conn = main.dial(t)
				}
				if !tc.health && tc.head != "" {
					conn = clientOf(conn)
				}
				fmt.Fprint(conn, tc.head)
				if d := ends(t, conn, tc.drip); d < tc.least || d > tc.most {
					t.Errorf("it ended after %v, want %v to %v", d, tc.least, tc.most)
				}
			})
		})
	}
}

// dripping has a byte each second, for ever.
type dripping struct{}

func (dripping) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return copy(p, "a"), nil
}

// The same over HTTP/2, where a connection has many requests: each has its own
// bound.
func TestSlowClientsOfHTTP2(t *testing.T) {
	inBubble(t, func(*server.Config) {}, func(t *testing.T, main, _ *pipes) {
		transport := &http.Transport{
			ForceAttemptHTTP2: true,
			DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c := tls.Client(main.dial(t), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				return c, c.HandshakeContext(ctx)
			},
		}
		defer transport.CloseIdleConnections()
		ask := func(method string, body io.Reader) (answer string, took time.Duration) {
			t.Helper()
			began := time.Now()
			req, err := http.NewRequest(method, "https://node/stats/summary", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return err.Error(), time.Since(began)
			}
			_ = resp.Body.Close()
			return fmt.Sprint(resp.Proto, " ", resp.StatusCode), time.Since(began)
		}
		answer, took := ask(http.MethodPost, dripping{})
		if answer != "HTTP/2.0 408" || took < 10*time.Second || took > 12*time.Second {
			t.Errorf("%s after %v, want 408 after 10s", answer, took)
		}
		if answer, took := ask(http.MethodGet, nil); answer != "HTTP/2.0 200" || took > time.Second {
			t.Errorf("after it: %s after %v", answer, took)
		}
	})
	inBubble(t, func(*server.Config) {}, func(t *testing.T, main, _ *pipes) {
		conn := tls.Client(main.dial(t), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		if d := ends(t, conn, 0); d < 10*time.Second || d > 12*time.Second {
			t.Errorf("a connection on which nothing is sent ended after %v, want 10s", d)
		}
	})
}

// Whoever does not read the answer gives up its place after the deadline.
func TestAnswerThatNobodyReads(t *testing.T) {
	inBubble(t, func(c *server.Config) {
		c.Requests, c.Pods = 1, pods(slices.Repeat([]*v1.Pod{webPod()}, 100)) // more than any buffer holds
	}, func(t *testing.T, main, _ *pipes) {
		slow := clientOf(main.dial(t))
		fmt.Fprint(slow, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		ask := func() int {
			conn := clientOf(main.dial(t))
			defer conn.Close()
			fmt.Fprint(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		if code := ask(); code != http.StatusTooManyRequests {
			t.Errorf("beside it: %d, want 429", code)
		}
		time.Sleep(46 * time.Second) // 30 of the endpoint, 10 of the reader, and TLS wants 5 to say farewell
		if code := ask(); code != http.StatusOK {
			t.Errorf("after its deadline: %d, want 200", code)
		}
	})
}

// The same at an expensive endpoint, whose clients have more time.
func TestFileThatNobodyReads(t *testing.T) {
	inBubble(t, func(c *server.Config) {
		if err := os.WriteFile(filepath.Join(c.SystemLogDir, "big"), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, main, _ *pipes) {
		for range 7 { // as many as one user may have
			slow := clientOf(main.dial(t))
			fmt.Fprint(slow, "GET /logs/big HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := slow.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		ask := func() int {
			conn := clientOf(main.dial(t))
			defer conn.Close()
			fmt.Fprint(conn, "GET /logs/none HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		time.Sleep(299 * time.Second)
		if code := ask(); code != http.StatusTooManyRequests {
			t.Errorf("beside them: %d, want 429", code)
		}
		time.Sleep(17 * time.Second) // 300 of the endpoint, 10 of the reader, and TLS wants 5 to say farewell
		if code := ask(); code != http.StatusNotFound {
			t.Errorf("after their deadline: %d, want 404", code)
		}
	})
}

// A head has its bound on every port and in both versions of HTTP.
func TestHugeHeads(t *testing.T) {
	n := run(t, whole(t))
	for _, h2 := range []bool{false, true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: h2}}
		t.Cleanup(client.CloseIdleConnections)
		for _, base := range []string{"https://" + n.main, "http://" + n.readOnly, "http://" + n.healthz} {
			for size, want := range map[int]int{512 << 10: 200, 2 << 20: 431} {
				req, err := http.NewRequest(http.MethodGet, base+"/healthz", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-A", strings.Repeat("a", size))
				resp, err := client.Do(req)
				if err != nil && want != 200 {
					continue // refused while it was being sent
				}
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("HTTP/2 %t, %s: a head of %d bytes = %d, want %d", h2, base, size, resp.StatusCode, want)
				}
			}
		}
	}
}
