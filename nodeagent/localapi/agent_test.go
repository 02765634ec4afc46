package localapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/podmgr"
)

// ask sends a request to an API in this process.
func ask(h http.Handler, method, path string, body any) (int, string) {
	text, _ := json.Marshal(body)
	r := httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// An agent runs what clients make, says what becomes of it, and shows what it has from
// elsewhere.
func TestAgent(t *testing.T) {
	n := agenttest.New(t)
	n.Timeout = time.Minute
	dir := t.TempDir()
	begin := func() (h http.Handler, stop func()) {
		api, err := localapi.New(localapi.Config{Node: n.Config.Node.Name, Store: store.NewDir(dir)})
		if err != nil {
			t.Fatal(err)
		}
		n.Config.Sources = []podmgr.Source{api.Show(n.Source), api.Source()}
		n.Config.Status.Sink, n.Config.Events = api, api
		end := testrun.Start(t, api.Run)
		n.Start()
		return api.Handler(localapi.Root), func() {
			n.Stop()
			end()
		}
	}
	h, stop := begin()
	n.Want(agenttest.Pod("static", agenttest.Container("c")))
	const pods = "/api/v1/namespaces/default/pods"
	must := func(method, path string, body any, code int, wants ...string) {
		t.Helper()
		for end := time.Now().Add(n.Timeout); ; time.Sleep(5 * time.Millisecond) {
			got, text := ask(h, method, path, body)
			missing := ""
			for _, w := range wants {
				if !strings.Contains(text, w) {
					missing = w
				}
			}
			if got == code && missing == "" {
				return
			}
			if method != http.MethodGet && got != http.StatusServiceUnavailable || time.Now().After(end) { // it says so until it has read its files
				t.Fatalf("%s %s: %d, want %d with %q: %s", method, path, got, code, missing, text)
			}
		}
	}
	pod := func(name string, args ...string) *v1.Pod {
		p := agenttest.Pod(name, agenttest.Container("c", args...))
		p.UID, p.Annotations = "", nil
		return p
	}
	must("POST", "/api/v1/namespaces/default/configmaps", &v1.ConfigMap{Data: map[string]string{"k": "v"}}, 422)
	must("POST", pods, pod("web"), 201)
	must("GET", pods+"/web", nil, 200, `"phase":"Running"`, `"type":"Ready","observedGeneration":1,"status":"True"`)
	must("GET", "/api/v1/namespaces/default/events", nil, 200, `"reason":"Started"`)
	must("GET", pods+"/static", nil, 200, `"phase":"Running"`)
	must("DELETE", pods+"/static", nil, 403, "can be removed only there")
	must("PATCH", pods+"/static", map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}}}, 403)

	once := pod("once", "exit", "0")
	once.Spec.RestartPolicy = v1.RestartPolicyNever
	must("POST", pods, once, 201)
	must("GET", pods+"/once", nil, 200, `"phase":"Succeeded"`)

	id := n.Await("web", agenttest.Ready).Status.ContainerStatuses[0].ContainerID
	stop()
	h, stop = begin()
	must("GET", pods+"/web", nil, 200, id, `"phase":"Running"`)
	must("GET", pods+"/once", nil, 200, `"phase":"Succeeded"`)
	n.Await("web", agenttest.Ready, agenttest.Restarts(0))

	must("POST", pods+"/web/eviction", map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]string{"name": "web"}}, 201)
	must("GET", pods+"/web", nil, 404)
	n.AwaitGone("web")
	must("DELETE", pods+"/once", nil, 200)
	must("GET", pods+"/once", nil, 404)
	n.Want()
	must("GET", pods+"/static", nil, 404)
	stop()
}
