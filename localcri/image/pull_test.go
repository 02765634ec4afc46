//go:build linux

package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pulled image is there by all its names, with what the CRI wants to know.
func TestPull(t *testing.T) {
	srv := newServer()
	one, two := archive(t, dir("a"), file("a/f", "one")), archive(t, dir("a"), file("a/g", "two"))
	img := srv.image(t, "app", "1", nil, one, two)
	s, stop := start(t, testConfig(t, memory{host: srv}))
	id := pull(t, s, host+"/app:1")
	if id != string(img.id) {
		t.Errorf("ID %s, want the config's digest %s", id, img.id)
	}
	check := func(s *Store) {
		t.Helper()
		byDigest := host + "/app@" + string(img.manifest)
		for _, ref := range []string{host + "/app:1", byDigest, id, strings.TrimPrefix(id, "sha256:"), img.id.hex()[:12]} {
			i := imageOf(t, s, ref)
			if i.GetId() != id || !slices.Equal(i.GetRepoTags(), []string{host + "/app:1"}) || !slices.Equal(i.GetRepoDigests(), []string{byDigest}) ||
				i.GetUid().GetValue() != 1000 || i.GetUsername() != "" || i.GetSize() < 6 || i.GetPinned() || i.GetSpec().GetAnnotations()["k"] != "v" {
				t.Errorf("%s: %v", ref, i)
			}
		}
		list, err := s.ListImages(t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Errorf("list: %v, %v", list, err)
		}
		for ref, want := range map[string]int{host + "/app:1": 1, host + "/app:2": 0} {
			if list, _ := s.ListImages(t.Context(), &runtimeapi.ImageFilter{Image: spec(ref)}); len(list) != want {
				t.Errorf("list of %s: %v", ref, list)
			}
		}
		root, err := s.Use(t.Context(), host+"/app:1", "c1")
		must(t, err)
		if len(root.Layers) != 2 || root.Defaults.User != "1000:7" || !slices.Equal(root.Defaults.Cmd, []string{"/run"}) || root.Mode != 0o755 {
			t.Errorf("%+v", root)
		}
		for i, want := range []map[string]string{{"a": "dir", "a/g": "two"}, {"a": "dir", "a/f": "one"}} {
			if got := look(t, root.Layers[i]); !equal(got, want) {
				t.Errorf("layer %d: %v, want %v", i, got, want)
			}
		}
		fsinfo, err := s.ImageFsInfo(t.Context())
		if err != nil || fsinfo.GetImageFilesystems()[0].GetUsedBytes().GetValue() != 6 || fsinfo.GetImageFilesystems()[0].GetTimestamp() == 0 {
			t.Errorf("%v, %v", fsinfo, err)
		}
		empty(t, s, ingestDir)
	}
	check(s)
	asked := srv.count("/blobs/")
	pull(t, s, host+"/app:1")
	if n := srv.count("/blobs/") - asked; n > 1 {
		t.Errorf("a second pull asked for %d blobs, want none but the config", n)
	}
	stop()
	s, _ = start(t, s.cfg) // what is on the disk is enough
	check(s)
}

// What the registry has is offered, and is not there for that.
func TestOffered(t *testing.T) {
	srv := newServer()
	m := srv.image(t, "app", "1", nil, archive(t, file("f", "text")))
	s, _ := start(t, testConfig(t, memory{host: srv}))
	for _, ref := range []string{host + "/app:1", host + "/app@" + string(m.manifest)} {
		if err := s.Offered(t.Context(), ref, nil); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if list, err := s.ListImages(t.Context(), nil); len(list) > 0 || err != nil {
		t.Errorf("there is %v, %v", list, err)
	}
}

// Each kind of failure has its code.
func TestPullErrors(t *testing.T) {
	layer := archive(t, file("f", strings.Repeat("text", 1000)))
	for name, c := range map[string]struct {
		ref  string
		hurt func(s *server, m made)
		conf func(c *Config)
		code codes.Code
		text string
	}{
		"no name":       {ref: "", code: codes.InvalidArgument},
		"bad name":      {ref: "UPPER/x", code: codes.InvalidArgument},
		"other digests": {ref: host + "/app@sha512:" + strings.Repeat("0", 128), code: codes.InvalidArgument, text: "sha256"},
		"no such tag":   {ref: host + "/app:2", code: codes.NotFound},
		"no such blob":  {hurt: func(s *server, m made) { delete(s.blobs, m.layers[0]) }, code: codes.NotFound},
		"nobody there":  {ref: "nowhere.test/app:1", code: codes.Unavailable, text: "RegistryUnavailable: "},
		"denied": {hurt: func(s *server, _ made) {
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/manifests/") {
					w.WriteHeader(http.StatusForbidden)
					return true
				}
				return false
			}
		}, code: codes.PermissionDenied},
		"wrong bytes": {hurt: func(s *server, m made) {
			b := bytes.Clone(s.blobs[m.layers[0]])
			b[len(b)/2] ^= 1
			s.blobs[m.layers[0]] = b
		}, code: codes.DataLoss},
		"other bytes of the same length": {hurt: func(s *server, m made) {
			s.blobs[m.layers[0]] = make([]byte, len(s.blobs[m.layers[0]]))
		}, code: codes.DataLoss},
		"wrong config": {hurt: func(s *server, m made) { s.blobs[m.id] = append(bytes.Clone(s.blobs[m.id]), ' ') }, code: codes.DataLoss},
		"no platform of ours": {hurt: func(s *server, m made) {
			s.offer("app", "1", ociIndex, asJSON(t, map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []any{
				map[string]any{"mediaType": ociManifest, "digest": m.manifest, "size": 1, "platform": oci.Platform{OS: "linux", Architecture: "s390x", Variant: ""}},
			}}))
		}, code: codes.NotFound, text: "s390x"},
		"image of another platform": {conf: func(c *Config) { c.Architecture = "riscv64" }, code: codes.NotFound, text: "amd64"},
		"schema 1":                  {hurt: func(s *server, _ made) { s.offer("app", "1", "x", []byte(`{"schemaVersion":1}`)) }, code: codes.InvalidArgument},
		"no manifest":               {hurt: func(s *server, _ made) { s.offer("app", "1", "x", []byte(`[`)) }, code: codes.InvalidArgument},
		"large manifest":            {hurt: func(s *server, _ made) { s.offer("app", "1", "x", make([]byte, maxManifest+1)) }, code: codes.InvalidArgument, text: "more than"},
		"many layers": {hurt: func(s *server, _ made) {
			s.offer("app", "1", ociManifest, []byte(`{"schemaVersion":2,"layers":[`+strings.Repeat("{},", 1<<19)+`{}]}`))
		}, code: codes.InvalidArgument, text: "limit"},
		"foreign layer": {hurt: func(s *server, m made) {
			s.offer("app", "1", ociManifest, bytes.Replace(m.doc, []byte("image.layer.v1"), []byte("image.layer.nondistributable.v1"), 1))
		}, code: codes.InvalidArgument, text: "layers[0]"},
		"artifact": {hurt: func(s *server, m made) {
			s.offer("app", "1", ociManifest, bytes.Replace(m.doc, []byte(ociConfig), []byte("application/x"), 1))
		}, code: codes.InvalidArgument, text: "config.mediaType"},
		"hostile layer":      {hurt: func(s *server, _ made) { s.image(t, "app", "1", nil, archive(t, file("../f", ""))) }, code: codes.InvalidArgument, text: "../f"},
		"no archive":         {hurt: func(s *server, _ made) { s.image(t, "app", "1", nil, bytes.Repeat([]byte("no archive"), 100)) }, code: codes.InvalidArgument},
		"layer is too large": {conf: func(c *Config) { c.MaxLayerBytes = 1000 }, code: codes.InvalidArgument, text: "limit"},
		"thresholds":         {conf: func(c *Config) { c.ReserveOf = func(bytes, _ int64) (int64, int64) { return bytes, 0 } }, code: codes.ResourceExhausted},
		"disk is full":       {conf: func(c *Config) { c.Reserve = 1 << 60 }, code: codes.ResourceExhausted},
		"signature": {conf: func(c *Config) {
			c.Verify = &verifier{refused: errors.New("unsigned")}
		}, code: codes.PermissionDenied, text: "SignatureValidationFailed: "},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer()
			m := srv.image(t, "app", "1", nil, layer)
			if c.hurt != nil {
				c.hurt(srv, m)
			}
			cfg := testConfig(t, memory{host: srv})
			if c.conf != nil {
				c.conf(&cfg)
			}
			s, _ := start(t, cfg)
			ref := c.ref
			if ref == "" && name != "no name" {
				ref = host + "/app:1"
			}
			_, err := s.PullImage(t.Context(), spec(ref), nil, nil)
			if st, _ := status.FromError(err); st.Code() != c.code || !strings.Contains(st.Message(), c.text) || strings.HasSuffix(c.text, ": ") && !strings.HasPrefix(st.Message(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.code, c.text)
			}
			if slices.Contains([]string{"no name", "bad name", "no such tag", "nobody there", "denied"}, name) { // known without the content
				if err := s.Offered(t.Context(), ref, nil); status.Code(err) != c.code {
					t.Errorf("offered: %v, want %v", err, c.code)
				}
			}
			if list, _ := s.ListImages(t.Context(), nil); len(list) > 0 {
				t.Errorf("there is %v", list)
			}
			left, _ := os.ReadDir(s.path(ingestDir))
			for _, e := range left {
				if strings.HasPrefix(e.Name(), "layer-") {
					t.Errorf("ingest has %s", e.Name())
				}
			}
		})
	}
}

// Servers that hang, cut, forget ranges or ask to wait cost time, and not the pull.
func TestUnreliableServers(t *testing.T) {
	layer := archive(t, file("f", randomText(1<<18)))
	for name, c := range map[string]struct {
		do    func(w http.ResponseWriter, r *http.Request, b []byte, n int) bool
		least time.Duration
		most  time.Duration
		fails codes.Code
	}{
		"cut twice": {do: func(w http.ResponseWriter, r *http.Request, b []byte, n int) bool {
			if n > 2 {
				return false
			}
			if n == 2 && r.Header.Get("Range") == "" {
				t.Error("the second request has no range")
			}
			cut := &cutWriter{w, len(b) / 4}
			serveBlob(cut, r, b)
			return true
		}, most: time.Minute},
		"cut, and no ranges": {do: func(w http.ResponseWriter, r *http.Request, b []byte, n int) bool {
			r = r.Clone(r.Context())
			r.Header.Del("Range")
			if n == 1 {
				w = &cutWriter{w, len(b) / 2}
			}
			serveBlob(w, r, b)
			return true
		}, most: time.Minute},
		"busy, come back in a minute": {do: func(w http.ResponseWriter, _ *http.Request, _ []byte, n int) bool {
			if n == 1 {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			return n == 1
		}, least: time.Minute, most: 2 * time.Minute},
		"come back tomorrow": {do: func(w http.ResponseWriter, _ *http.Request, _ []byte, _ int) bool {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}, most: time.Second, fails: codes.Unavailable},
		"hangs before its answer": {do: func(_ http.ResponseWriter, r *http.Request, _ []byte, n int) bool {
			<-r.Context().Done()
			return true
		}, least: 5 * time.Minute, most: time.Hour, fails: codes.Unavailable},
		"hangs in the middle, once": {do: func(w http.ResponseWriter, r *http.Request, b []byte, n int) bool {
			if n > 1 {
				return false
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			_, _ = w.Write(b[:1000])
			<-r.Context().Done()
			return true
		}, least: 5 * time.Minute, most: 10 * time.Minute},
		"wrong part": {do: func(w http.ResponseWriter, r *http.Request, b []byte, n int) bool {
			if n == 1 {
				serveBlob(&cutWriter{w, len(b) / 2}, r, b)
				return true
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 1-2/%d", len(b)))
			w.WriteHeader(http.StatusPartialContent)
			return true
		}, most: time.Hour, fails: codes.Unavailable},
		"endless": {do: func(w http.ResponseWriter, _ *http.Request, b []byte, _ int) bool {
			for {
				if _, err := w.Write(b); err != nil {
					return true
				}
			}
		}, most: time.Hour, fails: codes.DataLoss},
	} {
		t.Run(name, func(t *testing.T) {
			needRoot(t)
			synctest.Test(t, func(t *testing.T) {
				srv := newServer()
				m := srv.image(t, "app", "1", nil, layer)
				n := 0
				srv.before = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
						return false
					}
					srv.mu.Lock()
					n++
					at, b := n, srv.blobs[m.layers[0]]
					srv.mu.Unlock()
					return c.do(w, r, b, at)
				}
				s, stop := start(t, testConfig(t, memory{host: srv}))
				defer stop()
				begin := time.Now()
				_, err := s.PullImage(t.Context(), spec(host+"/app:1"), nil, nil)
				if took := time.Since(begin); took < c.least || took > c.most {
					t.Errorf("took %v, want %v to %v", took, c.least, c.most)
				}
				if status.Code(err) != c.fails {
					t.Errorf("%v, want %v", err, c.fails)
				}
			})
		})
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	c.left -= n
	_, err := c.ResponseWriter.Write(b[:n])
	return n, err
}

func randomText(n int) string {
	x := uint64(88172645463325252)
	b := make([]byte, n)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

// Mirrors are asked in order, and what they lack or have wrong comes from the
// host itself.
func TestMirrors(t *testing.T) {
	layer := archive(t, file("f", randomText(1000)))
	origin, first, second := newServer(), newServer(), newServer()
	m := origin.image(t, "app", "1", nil, layer)
	second.image(t, "cache/app", "1", nil, layer)
	second.blobs[m.layers[0]] = make([]byte, len(origin.blobs[m.layers[0]]))
	cfg := testConfig(t, memory{host: origin, "first.test": first, "second.test": second})
	cfg.Registries = map[string]Registry{host: {Mirrors: []Mirror{{Host: "down.test"}, {Host: "first.test"}, {Host: "second.test/cache", Username: "u", Password: "p"}}}}
	s, _ := start(t, cfg)
	auth := &runtimeapi.AuthConfig{Username: "mine", Password: "secret"}
	var sent []string
	for _, srv := range []*server{first, second} {
		srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
			sent = append(sent, r.Header.Get("Authorization"))
			return false
		}
	}
	_, err := s.PullImage(t.Context(), spec(host+"/app:1"), auth, nil)
	must(t, err)
	if first.count("manifests") == 0 || second.count("manifests") == 0 || origin.count("manifests") != 0 || origin.count("blobs/"+string(m.layers[0])) != 1 {
		t.Errorf("asked: first %v, second %v, origin %v", first.asked, second.asked, origin.asked)
	}
	for _, a := range sent {
		if b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(a, "Basic ")); strings.Contains(string(b), "secret") {
			t.Errorf("the pull's password was sent to a mirror")
		}
	}
	if got := imageOf(t, s, host+"/app:1"); got == nil {
		t.Error("the image does not have the host's name")
	}
}

// Credentials of every kind come to the host that they are for, and to no other.
func TestCredentials(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("user:word"))
	for name, c := range map[string]struct {
		auth *runtimeapi.AuthConfig
		want string // of the token server, or of the registry if that asks for none
		none bool
	}{
		"user and password": {auth: &runtimeapi.AuthConfig{Username: "user", Password: "word"}, want: "Basic " + basic},
		"auth":              {auth: &runtimeapi.AuthConfig{Auth: basic}, want: "Basic " + basic},
		"for this host":     {auth: &runtimeapi.AuthConfig{Auth: basic, ServerAddress: "https://" + host + "/v1/"}, want: "Basic " + basic},
		"for another":       {auth: &runtimeapi.AuthConfig{Auth: basic, ServerAddress: "other.test"}, none: true},
		"nobody's":          {none: true},
		"registry token":    {auth: &runtimeapi.AuthConfig{RegistryToken: "tok"}, want: "Bearer tok"},
		"identity token":    {auth: &runtimeapi.AuthConfig{IdentityToken: "idtok"}, want: "refresh_token=idtok"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer()
			srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
			var mu sync.Mutex
			var seen []string
			srv.before = func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				seen = append(seen, r.Header.Get("Authorization"))
				mu.Unlock()
				if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
					return false
				}
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://tokens.test/token",service="s"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			tokens := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(io.LimitReader(orEmpty(r.Body), 1000))
				mu.Lock()
				seen = append(seen, r.Header.Get("Authorization"), string(b))
				mu.Unlock()
				_, _ = w.Write([]byte(`{"token":"given"}`))
			})
			s, _ := start(t, testConfig(t, memory{host: srv, "tokens.test": tokens}))
			_, err := s.PullImage(t.Context(), spec(host+"/app:1"), c.auth, nil)
			must(t, err)
			mu.Lock()
			defer mu.Unlock()
			all := strings.Join(seen, "\n")
			if c.none && (strings.Contains(all, basic) || strings.Contains(all, "word")) {
				t.Errorf("sent: %s", all)
			}
			if !strings.Contains(all, c.want) {
				t.Errorf("sent: %s; want %s", all, c.want)
			}
		})
	}
	srv := newServer()
	s, _ := start(t, testConfig(t, memory{host: srv}))
	if _, err := s.PullImage(t.Context(), spec(host+"/app:1"), &runtimeapi.AuthConfig{Auth: "!!!secret"}, nil); status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func orEmpty(r io.Reader) io.Reader {
	if r == nil {
		return strings.NewReader("")
	}
	return r
}

// Credentials are sent to whom asks for them, whatever /v2/ says.
func TestChallengeIsThatOfTheRequest(t *testing.T) {
	const bearer = `Bearer realm="https://tokens.test/token",service="s"`
	authorized := func(r *http.Request) bool { return r.Header.Get("Authorization") != "" }
	for name, c := range map[string]struct {
		code      func(r *http.Request) (code int, challenge string) // 200: as without
		wantToken bool
		wantAuth  bool // at the registry
	}{
		"asks for nothing": {func(*http.Request) (int, string) { return 200, "" }, false, false},
		"asks at /v2/ alone": {func(r *http.Request) (int, string) {
			if r.URL.Path == "/v2/" {
				return 401, bearer
			}
			return 200, ""
		}, false, false},
		"asks at the repository alone": {func(r *http.Request) (int, string) {
			if r.URL.Path == "/v2/" || authorized(r) {
				return 200, ""
			}
			return 401, bearer
		}, true, true},
		"asks for basic at the repository": {func(r *http.Request) (int, string) {
			if r.URL.Path == "/v2/" || strings.HasPrefix(r.Header.Get("Authorization"), "Basic ") {
				return 200, ""
			}
			return 401, `Basic realm="x"`
		}, false, true},
		"hides the repository": {func(r *http.Request) (int, string) {
			switch {
			case authorized(r):
				return 200, ""
			case r.URL.Path == "/v2/":
				return 401, bearer
			}
			return 404, ""
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer()
			srv.image(t, "app", "1", nil, archive(t, file("f", "x")), archive(t, file("g", "y")))
			var tokens, auths atomic.Int32
			srv.before = func(w http.ResponseWriter, r *http.Request) bool {
				if authorized(r) {
					auths.Add(1)
				}
				code, challenge := c.code(r)
				if code == 200 {
					return false
				}
				if challenge != "" {
					w.Header().Set("WWW-Authenticate", challenge)
				}
				w.WriteHeader(code)
				return true
			}
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tokens.Add(1)
				if user, password, ok := r.BasicAuth(); !ok || user != "u" || password != "p" || r.URL.Query().Get("scope") != "repository:app:pull" {
					t.Errorf("asked for a token: %v, %v", r.URL, r.Header)
				}
				_, _ = w.Write([]byte(`{"token":"given"}`))
			})
			s, _ := start(t, testConfig(t, memory{host: srv, "tokens.test": server}))
			_, err := s.PullImage(t.Context(), spec(host+"/app:1"), &runtimeapi.AuthConfig{Username: "u", Password: "p"}, nil)
			must(t, err)
			if n := tokens.Load(); n > 1 || (n == 1) != c.wantToken {
				t.Errorf("asked for %d tokens, want one: %t", n, c.wantToken)
			}
			if n := auths.Load(); (n > 0) != c.wantAuth {
				t.Errorf("%d requests with credentials, want any: %t", n, c.wantAuth)
			}
		})
	}
}

// Whom an answer redirects to gets no credentials, though it asks.
func TestNoCredentialsForOthers(t *testing.T) {
	srv := newServer()
	m := srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
	srv.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
			return false
		}
		http.Redirect(w, r, "https://storage.test/blob", http.StatusTemporaryRedirect)
		return true
	}
	var asked atomic.Int32
	storage := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			t.Errorf("got %s", r.Header.Get("Authorization"))
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	s, _ := start(t, testConfig(t, memory{host: srv, "storage.test": storage}))
	_, err := s.PullImage(t.Context(), spec(host+"/app:1"), &runtimeapi.AuthConfig{Username: "u", Password: "p"}, nil)
	if status.Code(err) != codes.PermissionDenied || asked.Load() == 0 {
		t.Errorf("%v after %d requests, want PermissionDenied", err, asked.Load())
	}
}

// Nothing goes without TLS to a host that is not configured so, whoever asks for
// it, and what servers say in errors is not repeated.
func TestNothingGoesInTheClear(t *testing.T) {
	srv := newServer()
	m := srv.image(t, "app", "1", nil, archive(t, file("f", "x")))
	cfg := testConfig(t, nil)
	var mu sync.Mutex
	var clear []string
	hosts := memory{host: srv, "storage.test": srv, "tokens.test": srv, "10.0.0.1": srv}
	cfg.transport = func(Endpoint) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Scheme != "https" {
				mu.Lock()
				clear = append(clear, r.URL.String())
				mu.Unlock()
			}
			return hosts.RoundTrip(r)
		})
	}
	srv.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
			w.Header().Set("Location", "http://storage.test/x?signature=secret")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	s, _ := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.PullImage(ctx, spec(host+"/app:1"), nil, nil)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	// An address that looks like one of a private network changes nothing.
	_, err = s.PullImage(ctx, spec("10.0.0.1/none:1"), nil, nil)
	if err == nil {
		t.Error("pulled")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(clear) > 0 {
		t.Errorf("in the clear: %v", clear)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Two images that share five of six layers are seven layers to unpack, also if
// the first caller leaves.
func TestSharedLayersAreUnpackedOnce(t *testing.T) {
	var shared [][]byte
	for i := range 5 {
		shared = append(shared, archive(t, file(fmt.Sprint("f", i), randomText(100_000+i))))
	}
	for _, leave := range []bool{false, true} {
		srv := newServer()
		a := srv.image(t, "a", "1", nil, append(slices.Clone(shared), archive(t, file("a", "a")))...)
		srv.image(t, "b", "1", nil, append(slices.Clone(shared), archive(t, file("b", "b")))...)
		cfg := testConfig(t, memory{host: srv})
		var mu sync.Mutex
		unpacks := 0
		cfg.step = func(what string) {
			mu.Lock()
			defer mu.Unlock()
			if what == "extracted" {
				unpacks++
			}
		}
		held, free := make(chan struct{}), make(chan struct{})
		var once sync.Once
		srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, string(a.layers[0])) {
				once.Do(func() { close(held) })
				<-free
			}
			return false
		}
		s, _ := start(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.PullImage(ctx, spec(host+"/a:1"), nil, nil)
			if leave != (status.Code(err) == codes.Canceled) {
				t.Errorf("first: %v", err)
			}
		})
		<-held
		wg.Go(func() {
			if _, err := s.PullImage(t.Context(), spec(host+"/b:1"), nil, nil); err != nil {
				t.Errorf("second: %v", err)
			}
		})
		for joined := false; !joined; time.Sleep(time.Millisecond) {
			s.mu.Lock()
			for _, f := range s.flights {
				joined = joined || f.waiters == 2
			}
			s.mu.Unlock()
		}
		if leave {
			cancel()
		}
		time.AfterFunc(20*time.Millisecond, func() { close(free) })
		wg.Wait()
		cancel()
		mu.Lock()
		if most := 7; unpacks > most || !leave && unpacks != most {
			t.Errorf("leave %t: %d unpacks, want 7", leave, unpacks)
		}
		mu.Unlock()
		if n := srv.count("/blobs/" + string(a.layers[0])); n != 1 {
			t.Errorf("the shared layer was asked for %d times", n)
		}
	}
}

// A deadline ends a pull, and the next one goes on with what is there.
func TestDeadlineThenResume(t *testing.T) {
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		m := srv.image(t, "app", "1", nil, archive(t, file("f", randomText(1<<18))))
		var ranges []string
		srv.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
				return false
			}
			srv.mu.Lock()
			ranges = append(ranges, r.Header.Get("Range"))
			first, b := len(ranges) == 1, srv.blobs[m.layers[0]]
			srv.mu.Unlock()
			if first {
				w.Header().Set("Content-Length", strconv.Itoa(len(b)))
				_, _ = w.Write(b[:len(b)/2])
				<-r.Context().Done()
			}
			return first
		}
		s, stop := start(t, testConfig(t, memory{host: srv}))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := s.PullImage(ctx, spec(host+"/app:1"), nil, nil); status.Code(err) != codes.DeadlineExceeded || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		pull(t, s, host+"/app:1")
		if !slices.Equal(ranges, []string{"", fmt.Sprintf("bytes=%d-", len(srv.blobs[m.layers[0]])/2)}) {
			t.Errorf("ranges %q, want the second pull to go on", ranges)
		}
	})
}

// A machine gets the best image that it can run.
func TestPlatforms(t *testing.T) {
	p := func(arch, variant string) descriptor {
		return descriptor{Digest: digest(arch + "/" + variant), Platform: &oci.Platform{OS: "linux", Architecture: arch, Variant: variant}}
	}
	for _, c := range []struct {
		mine oci.Platform
		have []descriptor
		want digest
	}{
		{oci.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}, []descriptor{p("arm", "v6")}, "arm/v6"},
		{oci.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}, []descriptor{p("arm", "v5"), p("arm", "v7"), p("arm", "v6")}, "arm/v7"},
		{oci.Platform{OS: "linux", Architecture: "arm", Variant: "v6"}, []descriptor{p("arm", "v7"), p("arm", "v5")}, "arm/v5"},
		{oci.Platform{OS: "linux", Architecture: "arm", Variant: "v5"}, []descriptor{p("arm", "v7")}, ""},
		{oci.Platform{OS: "linux", Architecture: "arm", Variant: ""}, []descriptor{p("arm", "")}, "arm/"},
		{oci.Platform{OS: "linux", Architecture: "arm64", Variant: ""}, []descriptor{p("arm", "v7"), p("arm64", "v8")}, "arm64/v8"},
		{oci.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}, []descriptor{p("arm64", "")}, "arm64/"},
		{oci.Platform{OS: "linux", Architecture: "arm64", Variant: ""}, []descriptor{p("arm", "v7")}, "arm/v7"},
		{oci.Platform{OS: "linux", Architecture: "amd64", Variant: ""}, []descriptor{p("amd64", "v3"), p("amd64", "v2")}, ""},
		{oci.Platform{OS: "linux", Architecture: "amd64", Variant: "v3"}, []descriptor{p("amd64", ""), p("amd64", "v2")}, "amd64/v2"},
		{oci.Platform{OS: "linux", Architecture: "amd64", Variant: ""}, []descriptor{{Digest: "alone"}}, "alone"},
		{oci.Platform{OS: "linux", Architecture: "amd64", Variant: ""}, []descriptor{p("unknown", "")}, ""},
	} {
		got, err := choose(c.mine, c.have)
		if (err == nil) != (c.want != "") || err == nil && got[0].Digest != c.want {
			t.Errorf("%v of %v: %v, %v; want %q", c.mine, c.have, got, err, c.want)
		}
	}
}

// An image of many layers, two of them the same, and none at all.
func TestManyLayers(t *testing.T) {
	srv := newServer()
	layers := make([][]byte, 130)
	for i := range layers {
		layers[i] = archive(t, file(fmt.Sprint("f", i%129), fmt.Sprint(i%129)))
	}
	srv.image(t, "many", "1", nil, layers...)
	srv.image(t, "none", "1", nil)
	srv.image(t, "void", "1", nil, archive(t))
	rootOpaque := archive(t, file(".wh..wh..opq", ""), file("top", "x"))
	srv.image(t, "opaque", "1", nil, layers[0], rootOpaque)
	s, _ := start(t, testConfig(t, memory{host: srv}))
	for name, want := range map[string]int{"many": 129, "none": 2, "void": 2, "opaque": 2} {
		pull(t, s, host+"/"+name+":1")
		root, err := s.Use(t.Context(), host+"/"+name+":1", "c-"+name)
		must(t, err)
		if len(root.Layers) != want {
			t.Errorf("%s: %d layers, want %d", name, len(root.Layers), want)
		}
		for _, l := range root.Layers {
			if info, err := os.Stat(l); err != nil || !info.IsDir() || !filepath.IsAbs(l) {
				t.Errorf("%s: %v, %v", l, info, err)
			}
		}
	}
}

func TestPullProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		small, large := archive(t, file("a", "text")), archive(t, file("f", randomText(1<<18)))
		m := srv.image(t, "app", "1", nil, small, large)
		go1, go2 := make(chan struct{}), make(chan struct{})
		srv.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, string(m.layers[1])) {
				return false
			}
			srv.mu.Lock()
			b := srv.blobs[m.layers[1]]
			srv.mu.Unlock()
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			<-go1
			_, _ = w.Write(b[:len(b)/2])
			<-go2
			_, _ = w.Write(b[len(b)/2:])
			return true
		}
		s, stop := start(t, testConfig(t, memory{host: srv}))
		defer stop()
		first, second := int64(len(srv.blobs[m.layers[0]])), int64(len(srv.blobs[m.layers[1]]))
		check := func(what string, received, total int64) {
			t.Helper()
			if r, all := s.PullProgress(host + "/app:1"); r != received || all != total {
				t.Errorf("%s: %d of %d bytes, want %d of %d", what, r, all, received, total)
			}
		}
		check("before the pull", 0, 0)
		done := make(chan error, 1)
		go func() {
			_, err := s.PullImage(t.Context(), spec(host+"/app:1"), nil, nil)
			done <- err
		}()
		synctest.Wait()
		check("the first layer is there", first, first+second)
		close(go1)
		synctest.Wait()
		check("and a half of the second", first+second/2, first+second)
		if r, all := s.PullProgress(host + "/app"); r != 0 || all != 0 {
			t.Errorf("under another name: %d of %d", r, all)
		}
		close(go2)
		must(t, <-done)
		check("after the pull", 0, 0)
		if len(s.pulls) > 0 {
			t.Errorf("%d pulls are kept", len(s.pulls))
		}
	})
}
