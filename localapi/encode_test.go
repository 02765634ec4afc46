package localapi_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// Large answers are compressed for clients on other machines that take that, and for no others.
func TestCompressedAnswers(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("small", "1"))
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("large", strings.Repeat("x", 200<<10)))
	const far = "192.0.2.1:1234"
	for _, c := range []struct {
		path, from, takes string
		compressed        bool
	}{
		{"/large", far, "gzip", true}, {"", "[2001:db8::1]:1", "deflate, gzip;q=0.5", true},
		{"/large", far, "identity", false}, {"/large", far, "gzip;q=0", false}, {"/large", far, "gzip;q=x", false}, {"/small", far, "gzip", false},
		{"/large", "127.0.0.1:1", "gzip", false}, {"/large", "[::1]:1", "gzip", false}, {"/large", "[::ffff:127.0.0.1]:1", "gzip", false}, {"/large", "@", "gzip", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, configMaps+c.path, http.NoBody)
		r.RemoteAddr = c.from
		r.Header.Set("Accept-Encoding", c.takes)
		w := httptest.NewRecorder()
		a.Handler(localapi.Root).ServeHTTP(w, r)
		if compressed := w.Header().Get("Content-Encoding") == "gzip"; compressed != c.compressed {
			t.Errorf("%s to %s, which takes %s: compressed is %v", c.path, c.from, c.takes, compressed)
		}
		if !c.compressed {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || !json.Valid(plain) || len(plain) < 200<<10 {
			t.Errorf("%s: %d bytes, %v", c.path, len(plain), err)
		}
	}
}
