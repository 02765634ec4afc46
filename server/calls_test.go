package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/internal/runtimetest"
)

// What the runtime is asked for, by what a client asks.
func TestCallsOfTheRuntime(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"/exec/default/web/c?output=1&command=sh&command=-c&command=echo%20a%20%20b&command=", `exec id-c [sh -c echo a  b ] in false out true err false tty false`},
		{"/exec/default/web/uid-1/c?input=1&output=1&error=1", `exec id-c [] in true out true err true tty false`},
		{"/exec/default/web/c?input=1&output=1&error=1&tty=1", `exec id-c [] in true out true err false tty true`},
		{"/exec/default/web/init?error=1", `exec id-init [] in false out false err true tty false`},
		// A container has its terminal, or none, whatever the query says.
		{"/attach/default/web/shell?input=1&output=1&error=1", `attach id-shell in true out true err false tty true`},
		{"/attach/default/web/c?input=1&output=1&error=1&tty=1", `attach id-c in true out true err false tty false`},
		{"/attach/default/web/c?output=1&error=1", `attach id-c in false out true err true tty false`},
		{"/portForward/default/web", `forward sandbox-of-uid-1 []`},
		{"/portForward/default/web/uid-1?port=80", `forward sandbox-of-uid-1 []`}, // SPDY names ports in its streams
	} {
		c := whole(t)
		r := httptest.NewRequest(http.MethodPost, tc.url, nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "SPDY/3.1")
		handler(t, c).ServeHTTP(httptest.NewRecorder(), r)
		var got []string
		for _, call := range c.Runtime.(*runtime).calls {
			switch q := call.(type) {
			case *runtimeapi.ExecRequest:
				got = append(got, fmt.Sprint("exec ", q.ContainerId, " ", q.Cmd, " in ", q.Stdin, " out ", q.Stdout, " err ", q.Stderr, " tty ", q.Tty))
			case *runtimeapi.AttachRequest:
				got = append(got, fmt.Sprint("attach ", q.ContainerId, " in ", q.Stdin, " out ", q.Stdout, " err ", q.Stderr, " tty ", q.Tty))
			case *runtimeapi.PortForwardRequest:
				got = append(got, fmt.Sprint("forward ", q.PodSandboxId, " ", q.Port))
			}
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s: %q, want %q", tc.url, got, tc.want)
		}
	}
}

// A command that is run is split at blanks, from the query or a form, and has
// no timeout of its own.
func TestRun(t *testing.T) {
	c := whole(t)
	h := handler(t, c)
	for _, tc := range []struct{ url, form, want string }{
		{"/run/default/web/c?cmd=ls%20-l%20%20/%20", "", "id-c:ls|-l|/!"},
		{"/run/default/web/uid-1/c", "cmd=echo+a%09b", "id-c:echo|a|b!"},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.url, strings.NewReader(tc.form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || w.Body.String() != tc.want {
			t.Errorf("%s %q = %d %q, want %q", tc.url, tc.form, w.Code, w.Body, tc.want)
		}
	}
	if c.Runtime.(*runtime).timeout != 0 {
		t.Errorf("a timeout of %v", c.Runtime.(*runtime).timeout)
	}
}

func TestCheckpoint(t *testing.T) {
	c := whole(t)
	h := handler(t, c)
	for query, timeout := range map[string]int64{"": 0, "?timeout=7": 7, "?timeout=x&timeout=9": 9, "?timeout=-1": -1} {
		w := do(h, "POST", "/checkpoint/default/web/c"+query, "")
		rt := c.Checkpoint.(*runtime)
		q, _ := rt.calls[len(rt.calls)-1].(*runtimeapi.CheckpointContainerRequest)
		name := regexp.MustCompile(`^/var/lib/kubelet/checkpoints/checkpoint-web_default-c-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)\.tar$`)
		if w.Code != 200 || q.GetContainerId() != "id-c" || q.GetTimeout() != timeout || !name.MatchString(q.GetLocation()) {
			t.Errorf("%s = %d, asked %v; want timeout %d and %v", query, w.Code, q, timeout, name)
		}
		if want := `{"items":["` + q.GetLocation() + `"]}`; w.Body.String() != want {
			t.Errorf("%s = %q, want %q", query, w.Body, want)
		}
	}
	if w := do(h, "POST", "/checkpoint/default/web/c?timeout=99999999999", ""); w.Code != 404 {
		t.Errorf("more seconds than there is room for = %d", w.Code)
	}
}

// WebSockets that end here are counted, those that pass are not.
func TestMetricsOfWebSockets(t *testing.T) {
	rt := runtimetest.New()
	t.Cleanup(rt.Close)
	for _, off := range []bool{false, true} {
		c := whole(t)
		reg := prometheus.NewRegistry()
		c.Metrics, c.Gatherers, c.DisableWebSocketTranslation = reg, map[string]prometheus.Gatherer{"/metrics": reg}, off
		c.Runtime.(*runtime).leadTo(rt.Stream("refuse", ""))
		h := handler(t, c)
		for path, protocols := range map[string][]string{
			"/exec/default/web/c?output=1":     {"v5.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io"},
			"/attach/default/web/c?output=1":   {"v5.channel.k8s.io"},
			"/portForward/default/web?port=80": {"SPDY/3.1+portforward.k8s.io", "v4.channel.k8s.io"},
		} {
			for _, p := range protocols {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "websocket")
				r.Header.Set("Sec-WebSocket-Protocol", p)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		}
		got := do(h, "GET", "/metrics", "").Body.String()
		for _, want := range []string{`{subresource="exec"} 2`, `{subresource="attach"} 1`, `{subresource="portforward"} 1`} {
			if strings.Contains(got, "kubelet_websocket_streaming_requests_total"+want) == off {
				t.Errorf("translation off %t: %s is wrong in\n%s", off, want, got)
			}
		}
	}
}

// The head of an answer that follows a log goes out before there is any line.
func TestFollowOfAnEmptyLog(t *testing.T) {
	c := whole(t)
	path := filepath.Join(c.PodLogsDir, "0.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Logs = &logs{path: path, open: func() bool { return true }}
	n := run(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+n.main+"/containerLogs/default/web/c?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := n.client.Do(req) // returns with the head
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		t.Errorf("%d, %v; want 200 in chunks", resp.StatusCode, resp.TransferEncoding)
	}
	if err := os.WriteFile(path, []byte("2026-01-02T03:04:05Z stdout F late\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "late\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// Of several kinds of containers with one name the regular one is meant, then
// the init container.
func TestLogOfTheRightKind(t *testing.T) {
	status := func(id string) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "c", ContainerID: id, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	}
	st := &v1.PodStatus{ContainerStatuses: status("regular"), InitContainerStatuses: status("init"), EphemeralContainerStatuses: status("ephemeral")}
	for _, want := range []string{"regular", "init", "ephemeral"} {
		if id, err := server.LogOf(st, "p", "c", false); id != want || err != nil {
			t.Errorf("%q, %v; want %q", id, err, want)
		}
		switch want {
		case "regular":
			st.ContainerStatuses = nil
		case "init":
			st.InitContainerStatuses = nil
		}
	}
}

// The time of a request is that from its start to its end, and counts under the
// port that it came to.
func TestDurationOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := whole(t)
		reg := prometheus.NewRegistry()
		b := &blocking{begun: make(chan struct{}), release: make(chan struct{})}
		c.Metrics, c.Gatherers, c.Stats = reg, map[string]prometheus.Gatherer{"/metrics": reg}, b
		h := handler(t, c)
		done := make(chan struct{})
		go func() {
			do(h, "GET", "/stats/summary", "")
			close(done)
		}()
		<-b.begun
		time.Sleep(3 * time.Second)
		got := do(h, "GET", "/metrics", "").Body.String()
		if want := `kubelet_http_inflight_requests{long_running="false",method="GET",path="stats",server_type="readwrite"} 1`; !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
		close(b.release)
		<-done
		got = do(h, "GET", "/metrics", "").Body.String()
		if want := `kubelet_http_requests_duration_seconds_sum{long_running="false",method="GET",path="stats",server_type="readwrite"} 3`; !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	})
}

func TestMetricsOfTheReadOnlyPort(t *testing.T) {
	c := whole(t)
	reg := prometheus.NewRegistry()
	c.Metrics, c.Gatherers = reg, map[string]prometheus.Gatherer{"/metrics": reg}
	n := run(t, c)
	n.get(t, "http://"+n.readOnly+"/pods")
	n.get(t, "http://"+n.readOnly+"/exec/default/web/c") // which is none of its own
	_, got := n.get(t, "http://"+n.readOnly+"/metrics")
	for _, want := range []string{
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readonly"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readonly"} 1`,
		`kubelet_metrics_provider{provider="cri"} 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
