package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// loop is an agent's, as it was seen last.
type loop struct{ at time.Time }

func (l *loop) LastTurn() time.Time { return l.at }
func (l *loop) Pods() []*v1.Pod     { return nil }

// sickDevices are not well while they have an error.
type sickDevices struct{ err error }

func (d *sickDevices) check() Check {
	return Check{Name: devicePluginCheck, Err: func() error { return d.err }}
}

// The port of /healthz serves health, and nothing else.
func TestHealthPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, _, err := load(t, configHead+fmt.Sprintf("healthzPort: %d\nsyncFrequency: 10m\n", port))
	if err != nil {
		t.Fatal(err)
	}
	turns, devices := &loop{at: time.Now().Add(-19 * time.Minute)}, &sickDevices{}
	s, err := newHealthServer(c, turns, "n", checksOf(turns, c, []Check{devices.check()}), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	get := func(path string) (int, string) {
		t.Helper()
		for { // until it listens
			r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
			if err != nil {
				select {
				case err := <-done:
					t.Fatal(err)
				default:
					continue
				}
			}
			b, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			return r.StatusCode, string(b)
		}
	}
	for _, tc := range []struct {
		path string
		code int
		body string
	}{
		{"/healthz", 200, "ok"}, {"/metrics", 404, ""}, {"/", 404, ""}, {"/pods", 404, ""}, {"/v1/pods", 404, ""}, {"/configz", 404, ""},
	} {
		if code, body := get(tc.path); code != tc.code || tc.body != "" && body != tc.body {
			t.Errorf("%s: %d %q, want %d %q", tc.path, code, body, tc.code, tc.body)
		}
	}
	turns.at, devices.err = time.Now().Add(-21*time.Minute), errors.New("no directory")
	want := "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n[-]device-plugin failed: reason withheld\nhealthz check failed"
	if code, body := get("/healthz"); code != 500 || strings.TrimSpace(body) != want {
		t.Errorf("sick: %d %q, want 500 %q", code, body, want)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A source of pods that fails is not healthy, under a name of its own.
func TestHealthOfSources(t *testing.T) {
	var failure error
	c := sourcesCheck(func() error { return failure })
	if err := c.Check(nil); err != nil || c.Name != "pod-sources" {
		t.Errorf("%s: %v", c.Name, err)
	}
	failure = errors.New("source file of pods failed")
	if err := c.Check(nil); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
}
