package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Machines get z-pages as objects, if they ask for them by their kind.
func TestZPages(t *testing.T) {
	c := whole(t)
	c.Version = "v1.37.2"
	h := handler(t, c)
	const flags, status = ";g=config.k8s.io;v=v1beta1;as=Flagz", ";g=config.k8s.io;v=v1beta1;as=Statusz"
	for _, tc := range []struct {
		path, accept string
		code         int
		media, want  string
	}{
		{"/flagz", "", 200, "text/plain; charset=utf-8", "v=2\n"},
		{"/flagz", "*/*", 200, "text/plain; charset=utf-8", "v=2\n"},
		{"/flagz", "application/json" + flags, 200, "application/json", `"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"flags":{"v":"2"}`},
		{"/flagz", "application/json;g=config.k8s.io;v=v1alpha1;as=Flagz", 200, "application/json", "v1alpha1"},
		{"/flagz", "application/yaml" + flags, 200, "application/yaml", "kind: Flagz"},
		{"/flagz", "text/plain;q=0.5, application/json" + flags, 200, "application/json", "Flagz"},
		{"/flagz", "application/json;q=0.4" + flags + ", text/plain;q=0.5", 200, "text/plain; charset=utf-8", "v=2"},
		{"/flagz", "application/json", 406, "text/plain; charset=utf-8", "as=Flagz"},
		{"/flagz", "application/json" + status, 406, "text/plain; charset=utf-8", "as=Flagz"},
		{"/flagz", "application/json;g=config.k8s.io;v=v1;as=Flagz", 406, "text/plain; charset=utf-8", "want Accept"},
		{"/flagz", strings.Repeat("a/b, ", 5000) + ";;", 406, "text/plain; charset=utf-8", "want Accept"},
		{"/statusz", "application/json" + status, 200, "application/json", `"binaryVersion":"v1.37.2","emulationVersion":"1.37"`},
		{"/statusz", "", 200, "text/plain; charset=utf-8", "Binary version: v1.37.2\nEmulation version: 1.37\n"},
	} {
		req := httptest.NewRequest(http.MethodGet, tc.path, nil)
		req.Header.Set("Accept", tc.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != tc.code || w.Header().Get("Content-Type") != tc.media || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %.60s: %d %q %.300s; want %d %q %q", tc.path, tc.accept, w.Code, w.Header().Get("Content-Type"), w.Body, tc.code, tc.media, tc.want)
		}
		var obj map[string]any
		switch tc.media {
		case "application/json":
			if err := json.Unmarshal(w.Body.Bytes(), &obj); err != nil || obj["kind"] == nil {
				t.Errorf("%s: %v", tc.path, err)
			}
		case "application/yaml":
			if err := yaml.Unmarshal(w.Body.Bytes(), &obj); err != nil || obj["kind"] != "Flagz" {
				t.Errorf("%s: %v", tc.path, err)
			}
		}
	}
}

// Whatever somebody accepts, the answer is a page or a no.
func FuzzZPageAccept(f *testing.F) {
	for _, s := range []string{"", "*/*;q=0", "application/json;g=config.k8s.io;v=v1beta1;as=Flagz;q=1e309", "text/plain;q=NaN, application/yaml", ",,;=\"", "a/b;x=\"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		c := whole(t)
		req := httptest.NewRequest(http.MethodGet, "/flagz", nil)
		req.Header["Accept"] = []string{accept}
		w := httptest.NewRecorder()
		handler(t, c).ServeHTTP(w, req)
		if w.Code != http.StatusOK && w.Code != http.StatusNotAcceptable {
			t.Errorf("%q: %d %s", accept, w.Code, w.Body)
		}
	})
}
