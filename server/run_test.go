package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

func TestHTTP2CanBeTurnedOff(t *testing.T) {
	for _, off := range []bool{false, true} {
		c := whole(t)
		c.DisableHTTP2 = off
		n := run(t, c)
		conn, err := tls.Dial("tcp", n.main, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; (got == "h2") == off {
			t.Errorf("HTTP/2 off %v: negotiated %q", off, got)
		}
		_ = conn.Close()
	}
}

// If ports cannot be opened, the error names each, and Run closes the listeners that it was given.
func TestPortInUse(t *testing.T) {
	var l [2]net.Listener
	for i := range l {
		var err error
		if l[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		defer l[i].Close()
	}
	c := whole(t)
	c.Port, c.Address, c.ReadOnlyPort = 0, "127.0.0.1", l[0].Addr().(*net.TCPAddr).Port
	c.Healthz = l[1]
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "read-only port") {
		t.Errorf("error %v, want one about the read-only port", err)
	}
	if err := l[1].Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener of the healthz port is not closed: %v", err)
	}

	c.Healthz, c.HealthzPort = nil, c.ReadOnlyPort
	if s, err = server.New(c); err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	for _, want := range []string{"read-only port", "healthz port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about the %s", err, want)
		}
	}
}

func TestWrongConfig(t *testing.T) {
	_, err := server.New(server.Config{
		Port: 70000, Address: "here", EnableSystemLogQuery: true, Runtime: &runtime{}, Checkpoint: &runtime{},
		PodLogsDir: "logs", Health: []server.Check{{}}, Requests: -1,
	})
	for _, want := range []string{
		"Node", "Pods", "Port is 70000", `Address is "here"`, "TLS", "Authenticator", "Authorizer", "EnableSystemLogQuery",
		"Runtime needs Instances", "Checkpoint needs", `PodLogsDir is "logs"`, "Health[0]", "Requests -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// blocking answers when it is told to.
type blocking struct {
	begun   chan struct{}
	release chan struct{}
}

func (b *blocking) Summary(ctx context.Context, _ bool) (*statsapi.Summary, error) {
	b.begun <- struct{}{}
	select {
	case <-b.release:
		return &statsapi.Summary{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// What costs much is refused beyond its limit, and the rest goes on.
func TestTooManyHeavyRequests(t *testing.T) {
	c := whole(t)
	b := &blocking{begun: make(chan struct{}), release: make(chan struct{})}
	c.Stats = b
	n := run(t, c)
	url := "https://" + n.main + "/stats/summary"
	var wg sync.WaitGroup
	for range 7 { // of the eight that several users may have
		wg.Go(func() {
			if code, body := n.get(t, url); code != 200 {
				t.Errorf("a request within the limit = %d %s", code, body)
			}
		})
		<-b.begun
	}
	resp, err := n.client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("another one = %d, Retry-After %q; want 429 and a time", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if code, _ := n.get(t, "https://"+n.main+"/pods"); code != 200 {
		t.Errorf("another endpoint meanwhile = %d", code)
	}
	close(b.release)
	wg.Wait()
}

// A source of stats that hangs costs its caller the deadline, no more.
func TestDeadlineOfAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := whole(t)
		c.Stats = &blocking{begun: make(chan struct{}, 1)}
		began := time.Now()
		w := do(handler(t, c), http.MethodGet, "/stats/summary", "")
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "deadline") {
			t.Errorf("%d %q, want 500 and the deadline", w.Code, w.Body)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it took %v, want 30s", took)
		}
	})
}

// When Run ends, what is under way comes to its end, then streams are ended.
func TestGracefulEnd(t *testing.T) {
	c := whole(t)
	b := &blocking{begun: make(chan struct{}), release: make(chan struct{})}
	path := filepath.Join(c.PodLogsDir, "0.log")
	if err := os.WriteFile(path, []byte("2026-01-02T03:04:05Z stdout F first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Stats, c.Logs = b, &logs{path: path, open: func() bool { return true }}
	n := run(t, c)
	resp, err := n.client.Get("https://" + n.main + "/containerLogs/default/web/c?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	follow := bufio.NewReader(resp.Body)
	if line, err := follow.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	var slow sync.WaitGroup
	var answered atomic.Bool
	slow.Go(func() {
		code, _ := n.get(t, "https://"+n.main+"/stats/summary")
		answered.Store(code == 200)
	})
	<-b.begun
	ended := make(chan error, 1)
	go func() { ended <- n.stop() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for { // no more is taken
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.main)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	if ctx.Err() != nil {
		t.Fatal("connections are still taken")
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "2026-01-02T03:04:06Z stdout F second")
	_ = f.Close()
	if line, err := follow.ReadString('\n'); err != nil || line != "second\n" {
		t.Errorf("the stream has ended before what was under way: %q, %v", line, err)
	}
	close(b.release)
	slow.Wait()
	if !answered.Load() {
		t.Error("what was under way has not come to its end")
	}
	if _, err := io.ReadAll(follow); err != nil {
		t.Errorf("the stream's end: %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Every endpoint refuses whoever is not authenticated, and whoever may not.
func TestEveryEndpointIsGuarded(t *testing.T) {
	requests := []string{"GET /pods/../exec", "GET //exec/a/b/c", "GET /logs/.", "GET *"}
	for _, e := range endpoints {
		requests = append(requests, e.request)
	}
	failing := errors.New("the API server is away")
	for _, tc := range []struct {
		name   string
		authn  func(*http.Request) (*auth.User, error)
		authz  func(context.Context, auth.Attributes) (bool, string, error)
		code   int
		called bool // the authorizer
	}{
		{"nobody", func(*http.Request) (*auth.User, error) { return nil, nil }, nil, 401, false},
		{"error", func(*http.Request) (*auth.User, error) { return nil, failing }, nil, 401, false},
		{"user and error", func(*http.Request) (*auth.User, error) { return &auth.User{}, failing }, nil, 401, false},
		{"denied", nil, func(context.Context, auth.Attributes) (bool, string, error) { return false, "", nil }, 403, true},
		{"undecided", nil, func(context.Context, auth.Attributes) (bool, string, error) { return false, "", failing }, 500, true},
	} {
		c := guarded(t)
		called := false
		if tc.authn != nil {
			c.Authenticator = auth.AuthenticatorFunc(tc.authn)
		}
		c.Authorizer = auth.AuthorizerFunc(func(ctx context.Context, a auth.Attributes) (bool, string, error) {
			called = true
			if tc.authz == nil {
				return true, "", nil
			}
			return tc.authz(ctx, a)
		})
		h := handler(t, c)
		for i, u := range requests {
			method, path, _ := strings.Cut(u, " ")
			called = false
			r := httptest.NewRequest(method, "https://node/", nil)
			r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			unclean := i < 4
			want := tc.code
			if unclean && tc.called {
				want = 400
			}
			if w.Code != want || called != (tc.called && !unclean) {
				t.Errorf("%s, %s = %d %q and authorizer asked %v; want %d", tc.name, u, w.Code, w.Body, called, want)
			}
			if strings.Contains(w.Body.String(), failing.Error()) {
				t.Errorf("%s, %s says why: %q", tc.name, u, w.Body)
			}
		}
		if len(c.Runtime.(*runtime).calls) > 0 {
			t.Errorf("%s: the runtime was called: %v", tc.name, c.Runtime.(*runtime).calls)
		}
	}
}

// Of several subresources one is enough, and they are tried in order.
func TestFineGrained(t *testing.T) {
	for _, tc := range []struct {
		allow string
		code  int
		asked string
	}{
		{"pods", 200, "pods"},
		{"proxy", 200, "pods proxy"},
		{"", 403, "pods proxy"},
		{"error", 500, "pods"}, // the first one that cannot be decided is the last
	} {
		c := whole(t)
		var asked []string
		c.Authorizer = auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (bool, string, error) {
			asked = append(asked, a.Subresource)
			if a.Node != "node-1" || a.Verb != "get" || a.User.Name != "someone" || a.Path != "/pods" {
				t.Errorf("attributes %+v", a)
			}
			if tc.allow == "error" {
				return false, "", errors.New("away")
			}
			return a.Subresource == tc.allow, "", nil
		})
		w := do(handler(t, c), "GET", "/pods", "")
		if got := strings.Join(asked, " "); w.Code != tc.code || got != tc.asked {
			t.Errorf("allowed %q: %d, asked %s; want %d, %s", tc.allow, w.Code, got, tc.code, tc.asked)
		}
		if want := "Forbidden (user=someone, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"; tc.code == 403 && w.Body.String() != want {
			t.Errorf("%q, want %q", w.Body, want)
		}
	}
}
