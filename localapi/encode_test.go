package localapi_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// Large answers are compressed for clients that take that, and for no others.
func TestCompressedAnswers(t *testing.T) {
	a := start(t, &store.Memory{})
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("small", "1"))
	must[v1.ConfigMap](a, "POST", configMaps, asJSON, configMap("large", strings.Repeat("x", 200<<10)))
	const magic = "\x1f\x8b"
	for _, c := range []struct {
		path, takes string
		compressed  bool
	}{
		{"/large", "gzip", true}, {"", "deflate, gzip;q=0.5", true}, {"/large", "identity", false}, {"/large", "gzip;q=0", false}, {"/large", "gzip;q=x", false}, {"/small", "gzip", false},
	} {
		_, text := a.do("GET", configMaps+c.path, "", "", "Accept-Encoding", c.takes)
		if strings.HasPrefix(text, magic) != c.compressed {
			t.Errorf("%s, which takes %s: compressed is %v", c.path, c.takes, !c.compressed)
		}
		if !c.compressed {
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil || !json.Valid(plain) || len(plain) < 200<<10 {
			t.Errorf("%s: %d bytes, %v", c.path, len(plain), err)
		}
	}
}
