package localapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// FuzzRequest has heads and bodies of all kinds answered: none panics, and none is taken for a fault of the server.
func FuzzRequest(f *testing.F) {
	srv, err := localapi.New(localapi.Config{Node: "node-1", Store: &store.Memory{}})
	if err != nil {
		f.Fatal(err)
	}
	testrun.Start(f, srv.Run)
	h := srv.Handler(localapi.Root)
	for {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil)); w.Code == http.StatusOK {
			break
		}
	}
	for _, s := range []struct{ method, path, query, accept, zip, media, body string }{
		{"GET", configMaps, "labelSelector=!a,b+in+(c,d)&limit=3&continue=eyJydiI6MSwibiI6ImEifQ", "", "gzip;q=0.5", "", ""},
		{"GET", "/api/v1/events", "fieldSelector=involvedObject.name=a,type!=b", "application/json;as=Table;v=v1;g=meta.k8s.io, */*", "*", "", ""},
		{"POST", configMaps, "fieldManager=m&dryRun=All", "application/yaml", "", "application/json", `{"metadata":{"name":"a"},"data":{"k":"v"}}`},
		{"PATCH", configMaps + "/a", "force=true&fieldManager=m", "", "", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"},
		{"PATCH", configMaps + "/a", "dryRun=All", "", "", "application/json-patch+json", `[{"op":"add","path":"/data/a","value":"b"}]`},
		{"DELETE", configMaps, "labelSelector=a&propagationPolicy=Orphan", "application/vnd.kubernetes.protobuf", "", "application/json", `{"kind":"DeleteOptions"}`},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", "", "", "", `{"spec":{"resourceAttributes":{"verb":"get"}}}`},
		{"GET", "/openapi/v3/api/v1", "", "", "", "", ""},
		{"GET", "/api/v1/namespaces/default/pods/p/log", "container=c", "", "", "", ""},
		{"GET", "/apis/", "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "", "", ""},
	} {
		f.Add(s.method, s.path, s.query, s.accept, s.zip, s.media, s.body)
	}
	f.Fuzz(func(t *testing.T, method, path, query, accept, zip, media, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
		for name, v := range map[string]string{"Accept": accept, "Accept-Encoding": zip, "Content-Type": media} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		if strings.Contains(query, "watch") { // which lasts
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s %q?%q: %d %s", method, path, query, w.Code, w.Body)
		}
	})
}
