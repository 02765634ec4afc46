package local_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
)

type measuring struct {
	fakeAgent
	none bool
	err  error
}

func (m *measuring) of(name string) (*statsapi.Summary, error) {
	if m.none {
		return nil, m.err
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: name}, Pods: []statsapi.PodStats{}}, m.err
}

func (m *measuring) Summary(context.Context) (*statsapi.Summary, error)      { return m.of("full") }
func (m *measuring) CPUAndMemory(context.Context) (*statsapi.Summary, error) { return m.of("small") }

func TestStatsSummary(t *testing.T) {
	partly := errors.New("one thing\nanother \"thing\"")
	for _, tc := range []struct {
		agent   local.Agent
		query   string
		code    int
		body    string
		warning string
	}{
		{&measuring{}, "", http.StatusOK, `"nodeName":"full"`, ""},
		{&measuring{}, "?only_cpu_and_memory=false", http.StatusOK, `"nodeName":"full"`, ""},
		{&measuring{}, "?only_cpu_and_memory=true", http.StatusOK, `"nodeName":"small"`, ""},
		{&measuring{}, "?only_cpu_and_memory=perhaps", http.StatusBadRequest, "want true or false", ""},
		{&measuring{err: partly}, "", http.StatusOK, `"nodeName":"full"`, `199 - "one thing; another \"thing\""`},
		{&measuring{none: true, err: partly}, "", http.StatusInternalServerError, "one thing; another", ""},
		{&fakeAgent{}, "", http.StatusNotImplemented, "no usage statistics", ""},
	} {
		w := httptest.NewRecorder()
		local.Handler(tc.agent, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stats/summary"+tc.query, nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) || w.Header().Get("Warning") != tc.warning {
			t.Errorf("%q: %d %q warning %q", tc.query, w.Code, w.Body, w.Header().Get("Warning"))
		}
	}
}
