package local_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// pipes is a listener whose connections have no buffer and are in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// largeLog is a log of a megabyte.
func largeLog(t *testing.T) string {
	t.Helper()
	line := "2026-01-02T03:04:05.000000000Z stdout F " + strings.Repeat("x", 1000)
	lines := make([]string, 1000)
	for i := range lines {
		lines[i] = line
	}
	return rawFile(t, strings.Join(lines, "\n")+"\n")
}

func rawFile(t *testing.T, text string) string {
	t.Helper()
	path := t.TempDir() + "/0.log"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A client that stops reading is let go after ten minutes, with the file it holds;
// one that reads slowly is not.
func TestAReaderThatStopsIsLetGo(t *testing.T) {
	path := largeLog(t)
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}, logs: map[string]string{"first": path}}
			l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
			served := make(chan struct{})
			handler := local.Handler(a, nil)
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(served)
				handler.ServeHTTP(w, r)
			})}
			go func() { _ = srv.Serve(l) }()
			client, server := net.Pipe()
			l.conns <- server
			if _, err := client.Write([]byte("GET /v1/pods/default/web/log HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			got := 0
			for range 12 { // an hour
				buf := make([]byte, 4<<10)
				if slow {
					n, err := client.Read(buf)
					if err != nil {
						t.Fatalf("a slow reader was let go: %v", err)
					}
					got += n
				}
				time.Sleep(5 * time.Minute)
			}
			select {
			case <-served:
				if slow {
					t.Errorf("over after %d bytes", got)
				}
			default:
				if !slow {
					t.Error("the reader that stopped is still waited for")
				}
			}
			_ = client.Close()
			<-served
			_ = srv.Close()
			synctest.Wait()
		})
	}
}

// deadlined is a client that takes three pieces, and stops.
type deadlined struct {
	header   http.Header
	deadline time.Time
	pieces   int
	bare     bool // it was written to with less than the whole time left
}

func (d *deadlined) Header() http.Header                 { return d.header }
func (*deadlined) WriteHeader(int)                       {}
func (d *deadlined) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }

func (d *deadlined) FlushError() error {
	d.bare = d.bare || time.Until(d.deadline) < 9*time.Minute
	return nil
}

func (d *deadlined) Write(p []byte) (int, error) {
	if d.pieces++; d.pieces > 3 {
		return 0, os.ErrDeadlineExceeded
	}
	d.bare, d.deadline = d.bare || time.Until(d.deadline) < 9*time.Minute, time.Time{}
	return len(p), nil
}

// Each piece of a followed log has its time as well, and the first that is not read
// in it ends the request.
func TestEachPieceHasItsTime(t *testing.T) {
	a := &fakeAgent{pods: []*v1.Pod{newPod("default", "web", "u")}, logs: map[string]string{"first": largeLog(t)}}
	w := &deadlined{header: http.Header{}}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) || w.pieces != 4 || w.bare {
			t.Errorf("%v after %d pieces, %+v", err, w.pieces, w)
		}
	}()
	local.Handler(a, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/pods/default/web/log?follow=true", nil))
	t.Error("the request ended in order")
}
