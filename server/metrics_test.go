package server_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/server"
)

// Requests are counted under the kubelet's names, with a bounded number of
// labels, whatever paths and methods come.
func TestMetricsOfRequests(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := whole(t)
	c.Metrics = reg
	c.Gatherers = map[string]prometheus.Gatherer{"/metrics": reg, "/metrics/cadvisor": prometheus.NewRegistry()}
	h := handler(t, c)
	for range 2 {
		for _, r := range []string{
			"GET /pods", "GET /pods/", "GET /metrics/cadvisor", "GET /metrics/other", "GET /favicon.ico", "GET /a/b/c", "BREW /pods",
			"POST /exec/default/web/c", "POST /portForward/default/none", "GET /debug/pprof/", "GET /healthz/ping",
		} {
			method, url, _ := strings.Cut(r, " ")
			do(h, method, url, "")
		}
	}
	got := do(h, "GET", "/metrics", "").Body.String()
	for _, want := range []string{
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 4`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="metrics/cadvisor",server_type="readwrite"} 2`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readwrite"} 6`,
		`kubelet_http_requests_total{long_running="false",method="other",path="pods",server_type="readwrite"} 2`,
		`kubelet_http_requests_total{long_running="true",method="POST",path="exec",server_type="readwrite"} 2`,
		`kubelet_http_requests_total{long_running="true",method="POST",path="portForward",server_type="readwrite"} 2`,
		`kubelet_http_requests_total{long_running="true",method="GET",path="debug",server_type="readwrite"} 2`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="healthz",server_type="readwrite"} 2`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="pods",server_type="readwrite"} 0`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="metrics",server_type="readwrite"} 1`,
		`kubelet_http_requests_duration_seconds_count{long_running="false",method="GET",path="pods",server_type="readwrite"} 4`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(got, "favicon") || strings.Contains(got, "BREW") {
		t.Error("what a client sends became a label")
	}
}

// Two servers in one process share a registry.
func TestTwoServersOnOneRegistry(t *testing.T) {
	c := whole(t)
	c.Metrics = prometheus.NewRegistry()
	handler(t, c)
	if _, err := server.New(c); err != nil {
		t.Error(err)
	}
}
