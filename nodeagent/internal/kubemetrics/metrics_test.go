package kubemetrics_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent/internal/kubemetrics"
)

// setup is a client of a server in memory, and what is exported of its calls.
func setup(t *testing.T) (*kubeapitest.Server, *kubeapi.Client, *kubemetrics.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := kubemetrics.New(reg)
	if err != nil {
		t.Fatal(err)
	}
	srv := kubeapitest.New()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config(), Observer: m})
	if err != nil {
		t.Fatal(err)
	}
	return srv, c, m, reg
}

// shows compares the metrics whose names begin so with what they should be.
func shows(t *testing.T, reg *prometheus.Registry, prefix, want string) {
	t.Helper()
	if got := strings.Join(lines(t, reg, prefix), "\n"); got != strings.TrimSpace(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", prefix, got, strings.TrimSpace(want))
	}
}

// lines are counters, gauges, and the numbers of observations.
func lines(t *testing.T, reg *prometheus.Registry, prefix string) (out []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), value))
		}
	}
	return out
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c, _, reg := setup(t)
		srv.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}})
		get := func(name string) error {
			return c.Once().Get(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: name}, &v1.Node{})
		}
		srv.Fail(kubeapitest.Slow(300*time.Millisecond, kubeapitest.Any))
		if err := get("edge-1"); err != nil {
			t.Fatal(err)
		}
		srv.Heal()
		if err := get("none"); err == nil {
			t.Error("a node that is not there is read")
		}
		srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(http.StatusServiceUnavailable), kubeapitest.Any))
		_ = get("edge-1")
		srv.Stop()
		_ = get("edge-1")
		host := strings.TrimPrefix(srv.Config().Host, "http://")
		shows(t, reg, "rest_client_requests", strings.ReplaceAll(`
rest_client_requests_total{code=200,host=HOST,method=GET} 1
rest_client_requests_total{code=404,host=HOST,method=GET} 1
rest_client_requests_total{code=503,host=HOST,method=GET} 1
rest_client_requests_total{code=<error>,host=HOST,method=GET} 1
`, "HOST", host))
		fams, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fams {
			if f.GetName() != "rest_client_request_duration_seconds" {
				continue
			}
			for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
				if b.GetUpperBound() == 0.25 && b.GetCumulativeCount() != 0 {
					t.Errorf("%d answers within 250 ms, want none: the one took 300 ms, the others no time", b.GetCumulativeCount())
				}
				if b.GetUpperBound() == 0.5 && b.GetCumulativeCount() != 1 {
					t.Errorf("%d answers within 500 ms, want 1", b.GetCumulativeCount())
				}
			}
		}
	})
}

// An error of a server, or of what stands before it, is no contact with it; its
// refusal is.
func TestLastContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c, m, reg := setup(t)
		get := func() {
			_ = c.Once().Get(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &v1.Node{})
		}
		srv.Stop()
		time.Sleep(time.Minute)
		get()
		if got := m.LastContact(); got != time.Minute {
			t.Errorf("before the first answer %v, want a minute", got)
		}
		srv.Start()
		for _, tc := range []struct {
			code int
			want time.Duration
		}{{401, 0}, {403, 0}, {429, 0}, {404, 0}, {500, time.Second}, {503, time.Second}} {
			srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(404), kubeapitest.Any))
			get()
			time.Sleep(time.Second)
			srv.Fail(kubeapitest.Refuse(1, kubeapitest.Status(tc.code), kubeapitest.Any))
			get()
			if got := m.LastContact(); got != tc.want {
				t.Errorf("after %d: %v, want %v", tc.code, got, tc.want)
			}
		}
		time.Sleep(9 * time.Second)
		shows(t, reg, "nodewright_apiserver_last", `
nodewright_apiserver_last_contact_age_seconds{} 10
`)
	})
}

func TestRegisterer(t *testing.T) {
	m, err := kubemetrics.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Exchanged(http.MethodGet, "h", 200, time.Second)
	reg := prometheus.NewRegistry()
	if _, err := kubemetrics.New(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := kubemetrics.New(reg); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}
