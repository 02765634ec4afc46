package local_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/agent/local"
)

type explaining struct{ fakeAgent }

func (*explaining) WhyNode() local.NodeWhy {
	return local.NodeWhy{Name: "edge", Figures: []local.NodeFigure{{Signal: "memory.available", Threshold: "100Mi"}}}
}

func TestNodeWhy(t *testing.T) {
	for _, tc := range []struct {
		agent local.Agent
		code  int
		body  string
	}{
		{&explaining{}, http.StatusOK, `{"name":"edge","figures":[{"signal":"memory.available","threshold":"100Mi"}]}`},
		{&fakeAgent{}, http.StatusNotImplemented, "does not explain its node"},
	} {
		w := httptest.NewRecorder()
		local.Handler(tc.agent, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/node/why", nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%d %q; want %d %q", w.Code, w.Body, tc.code, tc.body)
		}
	}
}
