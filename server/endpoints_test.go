package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/server"
)

func do(h http.Handler, method, url, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, url, strings.NewReader(body)))
	return w
}

func TestEndpoints(t *testing.T) {
	c := whole(t)
	reg := prometheus.NewRegistry()
	c.Gatherers = map[string]prometheus.Gatherer{"/metrics": reg, "/metrics/cadvisor": reg}
	c.Metrics = reg
	h := handler(t, c)
	for _, tc := range []struct {
		method, url string
		code        int
		body        string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/healthz/ping", 200, "ok"},
		{"GET", "/healthz/log", 200, "ok"},
		{"GET", "/healthz/other", 404, ""},
		{"GET", "/livez", 200, "ok"},
		{"GET", "/readyz?verbose", 200, "readyz check passed"},
		{"HEAD", "/healthz", 200, ""},
		{"DELETE", "/healthz", 405, ""},
		{"HEAD", "/readyz", 200, ""},
		{"HEAD", "/healthz/ping", 200, ""},
		{"HEAD", "/metrics", 200, ""},
		{"HEAD", "/stats/summary", 200, ""},
		{"HEAD", "/configz", 200, ""},
		{"HEAD", "/logs/", 200, ""},
		{"HEAD", "/nothing", 404, ""},
		{"HEAD", "/debug/pprof/profile", 405, ""},
		{"HEAD", "/debug/flags/v", 405, ""},
		{"HEAD", "/exec/default/web/c?output=1", 405, ""},
		{"HEAD", "/containerLogs/default/web/c?follow=true", 405, ""},
		{"GET", "/pods", 200, `"kind":"PodList"`},
		{"GET", "/pods/", 200, `"name":"web"`},
		{"HEAD", "/pods", 200, ""},
		{"POST", "/pods", 405, "Method Not Allowed"},
		{"GET", "/pods/web", 404, ""},
		{"GET", "/runningpods", 200, `"kind":"PodList"`},
		{"GET", "/runningpods/", 200, `"kind":"PodList"`},
		{"GET", "/stats/summary", 200, `"nodeName":"all"`},
		{"POST", "/stats/summary", 200, `"nodeName":"all"`},
		{"PUT", "/stats/summary", 405, ""},
		{"GET", "/stats/summary?only_cpu_and_memory=true", 200, `"nodeName":"cpu and memory"`},
		{"GET", "/stats/summary?only_cpu_and_memory=1", 200, `"nodeName":"all"`},
		{"GET", "/stats/summary?only_cpu_and_memory=true&only_cpu_and_memory=true", 200, `"nodeName":"all"`},
		{"GET", "/metrics", 200, "kubelet_http_requests_total"},
		{"GET", "/metrics/cadvisor", 200, ""},
		{"GET", "/metrics/slis", 200, `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{"GET", "/metrics/none", 404, ""},
		{"GET", "/configz", 200, `{"kubeletconfig":{"kind":"KubeletConfiguration"}}`},
		{"GET", "/statusz", 200, "kubelet statusz"},
		{"GET", "/flagz", 200, "v=2"},
		{"GET", "/debug/flags/v", 200, "2"},
		{"PUT", "/debug/flags/v", 400, "error reading the verbosity"},
		{"GET", "/debug/pprof/", 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{"GET", "/debug/pprof/none", 404, "Unknown profile"},
		{"GET", "/debug/pprof/profile?seconds=0.01", 200, ""},
		{"GET", "/debug/pprof/trace?seconds=0.01", 200, ""},
		{"GET", "/debug/pprof/profile?seconds=86400", 400, "seconds"},
		{"GET", "/debug/pprof/cmdline", 200, "server.test"},
		{"GET", "/logs/", 200, ""},
		{"GET", "/logs/../../etc/passwd", 400, ""},
		{"GET", "/logs/none", 404, ""},
		{"GET", "/nothing", 404, ""},
		{"GET", "/", 404, ""},
		{"POST", "/run/default/web/c?cmd=ls++-l", 200, "id-c:ls|-l!"},
		{"POST", "/run/default/web/uid-1/c?cmd=ls", 200, "id-c:ls!"},
		{"POST", "/run/default/web/uid-2/c?cmd=ls", 404, "uid-2"},
		{"POST", "/run/default/web/c", 400, `parameter "cmd" is required`},
		{"GET", "/run/default/web/c?cmd=ls", 405, ""},
		{"POST", "/run/default/none/c?cmd=ls", 404, "pod does not exist"},
		{"POST", "/run/default/web/none?cmd=ls", 404, "not found"},
		{"POST", "/checkpoint/default/web/c", 200, `{"items":["/var/lib/kubelet/checkpoints/checkpoint-web_default-c-`},
		{"POST", "/checkpoint/default/web/init?timeout=7", 200, "-init-"},
		{"POST", "/checkpoint/default/web/c?timeout=7&timeout=soon", 404, "soon"},
		{"POST", "/checkpoint/other/web/c", 404, "pod does not exist"},
		{"POST", "/checkpoint/default/web/other", 404, "other"},
		{"GET", "/checkpoint/default/web/c", 405, ""},
		{"PUT", "/exec/default/web/c", 405, ""},
		{"GET", "/exec/default/web/c", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"GET", "/exec/default/web/c?error=1&tty=1", 400, "you must specify"},
		{"GET", "/exec/default/web/c?output=true", 400, "you must specify"},
		{"GET", "/exec/default/none/c?output=1", 404, "pod does not exist"},
		{"GET", "/exec/default/web/uid-2/c?output=1", 404, "uid-2"},
		{"GET", "/exec/default/web/none?output=1", 404, "none"},
		{"GET", "/exec/default/web/c?output=1", 400, "Upgrade request required"},
		{"GET", "/attach/default/web/c?output=1", 400, "Upgrade request required"},
		{"GET", "/attach/default/web/none?output=1", 404, "none"},
		{"POST", "/portForward/default/web", 400, "Upgrade request required"},
		{"POST", "/portForward/default/none", 404, "pod does not exist"},
	} {
		w := do(h, tc.method, tc.url, "")
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s %s = %d %.200q, want %d with %q", tc.method, tc.url, w.Code, w.Body.String(), tc.code, tc.body)
		}
		if tc.code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", tc.method, tc.url)
		}
	}
	if w := do(h, "PUT", "/debug/flags/v", "5"); w.Code != 200 || w.Body.String() != "successfully set klog.logging.verbosity to 5" {
		t.Errorf("set the log's level: %d %q", w.Code, w.Body)
	}
	if w := do(h, "GET", "/debug/flags/v", ""); w.Body.String() != "5\n" {
		t.Errorf("the log's level: %q", w.Body)
	}
	if w := do(h, "PUT", "/debug/flags/v", "11"); w.Code != 400 {
		t.Errorf("set a level that is refused: %d", w.Code)
	}
}

func TestSwitches(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*server.Config)
		want   map[string]string // url: code and text
	}{
		{"debugging off", func(c *server.Config) { c.EnableDebuggingHandlers = false }, map[string]string{
			"POST /run/default/web/c":          "405 Debug endpoints are disabled.",
			"POST /exec/default/web/c":         "405 Debug endpoints are disabled.",
			"GET /attach/default/web/c":        "405 Debug endpoints are disabled.",
			"GET /portForward/default/web":     "405 Debug endpoints are disabled.",
			"GET /containerLogs/default/web/c": "405 Debug endpoints are disabled.",
			"GET /runningpods/":                "405 Debug endpoints are disabled.",
			"GET /debug/pprof/heap":            "405 Debug endpoints are disabled.",
			"GET /logs/":                       "405 Debug endpoints are disabled.",
			"GET /configz":                     "404 404 page not found",
			"POST /checkpoint/default/web/c":   "404 404 page not found",
			"PUT /debug/flags/v":               "404 404 page not found",
			"GET /healthz":                     "200 ok",
		}},
		{"system logs off", func(c *server.Config) { c.EnableSystemLogHandler = false }, map[string]string{
			"GET /logs/":         "405 logs endpoint is disabled.",
			"GET /logs/messages": "405 logs endpoint is disabled.",
		}},
		{"profiling off", func(c *server.Config) { c.EnableProfilingHandler = false }, map[string]string{
			"GET /debug/pprof/heap": "405 profiling endpoint is disabled.",
			"PUT /debug/flags/v":    "400 error reading the verbosity \"\"; want a number from 0",
		}},
		{"flags off", func(c *server.Config) { c.EnableDebugFlagsHandler = false }, map[string]string{
			"PUT /debug/flags/v": "405 flags endpoint is disabled.",
		}},
		{"no checkpoints", func(c *server.Config) { c.Checkpoint = nil }, map[string]string{
			"POST /checkpoint/default/web/c": "404 404 page not found",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := whole(t)
			tc.change(&c)
			h := handler(t, c)
			for req, want := range tc.want {
				method, url, _ := strings.Cut(req, " ")
				w := do(h, method, url, "")
				if got := fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String())); got != want {
					t.Errorf("%s = %q, want %q", req, got, want)
				}
			}
			if w := do(h, "GET", "/pods", ""); w.Code != 200 {
				t.Errorf("GET /pods = %d", w.Code)
			}
		})
	}
}

// What the runtime says becomes a status code.
func TestErrorsOfTheRuntime(t *testing.T) {
	for _, tc := range []struct {
		err   error
		code  int
		retry string
	}{
		{status.Error(codes.NotFound, "no container"), 404, ""},
		{status.Error(codes.ResourceExhausted, "too many execs"), 429, "1"},
		{fmt.Errorf("exec: %w", status.Error(codes.ResourceExhausted, "too many execs")), 429, "1"},
		{status.Error(codes.Unimplemented, "no such call"), 500, ""},
		{errors.New("broken"), 500, ""},
	} {
		c := whole(t)
		rt := &runtime{err: tc.err}
		c.Runtime, c.Checkpoint, c.Stats = rt, rt, rt
		h := handler(t, c)
		for _, url := range []string{"/exec/default/web/c?output=1", "/attach/default/web/c?output=1", "/portForward/default/web"} {
			r := httptest.NewRequest(http.MethodPost, url, nil)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "SPDY/3.1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.code || w.Header().Get("Retry-After") != tc.retry || !strings.Contains(w.Body.String(), tc.err.Error()) {
				t.Errorf("%s with %v = %d %q, Retry-After %q", url, tc.err, w.Code, w.Body, w.Header().Get("Retry-After"))
			}
		}
		for _, url := range []string{"/run/default/web/c?cmd=ls", "/checkpoint/default/web/c", "/stats/summary"} {
			if w := do(h, "POST", url, ""); w.Code != 500 || !strings.Contains(w.Body.String(), tc.err.Error()) {
				t.Errorf("%s with %v = %d %q, want 500 with the text", url, tc.err, w.Code, w.Body)
			}
		}
	}
}

// The list can be read back, and no pod is missing.
func TestPods(t *testing.T) {
	for n := range 3 {
		c := whole(t)
		c.Pods = pods(nil)
		for range n {
			c.Pods = append(c.Pods.(pods), webPod())
		}
		var list v1.PodList
		if err := json.Unmarshal(do(handler(t, c), "GET", "/pods", "").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != n || list.Kind != "PodList" || list.APIVersion != "v1" {
			t.Errorf("%d pods are %d of kind %q", n, len(list.Items), list.Kind)
		}
	}
}

func TestHealth(t *testing.T) {
	bad := errors.New("a secret reason")
	var err error
	c := whole(t)
	c.Health = []server.Check{{Name: "syncloop", Check: func(*http.Request) error { return err }}}
	h := handler(t, c)
	if w := do(h, "GET", "/healthz", ""); w.Code != 200 || w.Body.String() != "ok" {
		t.Errorf("healthy: %d %q", w.Code, w.Body)
	}
	err = bad
	w := do(h, "GET", "/healthz", "")
	want := "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
	if w.Code != 500 || w.Body.String() != want {
		t.Errorf("unhealthy: %d %q, want %q", w.Code, w.Body, want)
	}
	if w := do(h, "GET", "/healthz/syncloop", ""); w.Code != 500 {
		t.Errorf("the check alone: %d", w.Code)
	}
	if w := do(h, "GET", "/healthz?exclude=syncloop", ""); w.Code != 200 {
		t.Errorf("without the check: %d", w.Code)
	}
	if w := do(h, "GET", "/metrics/slis", ""); !strings.Contains(w.Body.String(), `kubernetes_healthcheck{name="syncloop",type="healthz"} 0`) {
		t.Errorf("slis: %s", w.Body)
	}
}

// The loop is well for the longer of five minutes and twice its period after it
// turned, and before it turned at all.
func TestSyncLoop(t *testing.T) {
	for period, limit := range map[time.Duration]time.Duration{
		time.Minute: 5 * time.Minute, 150 * time.Second: 5 * time.Minute, 10 * time.Minute: 20 * time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			var last time.Time
			c := whole(t)
			c.Health = []server.Check{server.SyncLoop(func() time.Time { return last }, period)}
			h := handler(t, c)
			is := func(when string, code int) {
				t.Helper()
				for _, path := range []string{"/healthz", "/livez", "/readyz", "/healthz/syncloop"} {
					w := do(h, "GET", path, "")
					if w.Code != code || code == 500 && !strings.Contains(w.Body.String(), "[-]syncloop failed") {
						t.Errorf("period %v, %s: %s = %d %q, want %d", period, when, path, w.Code, w.Body, code)
					}
				}
				if w := do(h, "GET", "/healthz/ping", ""); w.Code != 200 {
					t.Errorf("period %v, %s: ping = %d", period, when, w.Code)
				}
			}
			time.Sleep(time.Hour)
			is("before the first turn", 200)
			last = time.Now()
			time.Sleep(limit)
			is("at its limit", 200)
			time.Sleep(time.Nanosecond)
			is("after it", 500)
			last = time.Now()
			is("after another turn", 200)
		})
	}
}
