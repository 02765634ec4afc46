//go:build linux

package image

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// clientCert is a certificate in PEM that signs itself, and its key.
func clientCert(t testing.TB) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	must(t, err)
	k, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: k})
}

// lay makes files below a directory.
func lay(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must(t, os.WriteFile(at, []byte(text), 0o600))
	}
}

func TestParseHosts(t *testing.T) {
	dir := t.TempDir()
	cert, key := clientCert(t)
	lay(t, dir, map[string]string{"ca.crt": "CA", "other.crt": "OTHER", "c.cert": string(cert), "c.key": string(key), "both.pem": string(cert) + string(key)})
	for _, tc := range []struct {
		name, text string
		want       Registry
		unused     []string
	}{
		{"nothing", "", Registry{}, nil},
		{"server", `server = "https://registry-1.docker.io"`, Registry{Server: "registry-1.docker.io"}, nil},
		{"server without a scheme", `server = "r.test:5000"`, Registry{Server: "r.test:5000"}, nil},
		{"plain", "server = 'http://r.test'\nskip_verify = true", Registry{Server: "r.test", Endpoint: Endpoint{PlainHTTP: true, SkipVerify: true}}, nil},
		{"mirrors in their order", `
server = "https://r.test"
[host."https://z.test/v2/cache"]
  capabilities = ["pull", "resolve"]
  override_path = true
[host."http://a.test:5000"]
  capabilities = ["pull"]
  [host."http://a.test:5000".header]
    x-token = ["a", "b"]
    authorization = "Basic x"
[host."https://m.test/some/api"]
  capabilities = ["Resolve", "push"]
[host."https://n.test/other/"]
  override_path = true
  dial_timeout = "3s"`,
			Registry{Server: "r.test", Mirrors: []Mirror{
				{Host: "z.test/cache"},
				{Host: "a.test:5000", Endpoint: Endpoint{PlainHTTP: true, Lacks: Tags, Header: http.Header{"X-Token": {"a", "b"}, "Authorization": {"Basic x"}}}},
				{Host: "m.test", Endpoint: Endpoint{Root: "/some/api/v2", Lacks: Content}},
				{Host: "n.test", Endpoint: Endpoint{Root: "/other", DialTimeout: 3 * time.Second}},
			}}, nil},
		{"authorities", "ca = 'ca.crt'\n[host.'m.test']\nca = ['ca.crt', '" + dir + "/other.crt']",
			Registry{Endpoint: Endpoint{CA: []byte("CA\n")}, Mirrors: []Mirror{{Host: "m.test", Endpoint: Endpoint{CA: []byte("CA\nOTHER\n")}}}}, nil},
		{"push alone", "server = 'r.test'\ncapabilities = ['push']", Registry{Server: "r.test", Endpoint: Endpoint{Lacks: Tags | Content}}, nil},
		{"fields that are not known", "x = 1\n[host.'m.test']\nskip_verfy = true", Registry{Mirrors: []Mirror{{Host: "m.test"}}}, []string{"x", "host.m.test.skip_verfy"}},
	} {
		got, unused, err := parseHosts([]byte(tc.text), dir)
		if err != nil || !reflect.DeepEqual(got, tc.want) || !slices.Equal(unused, tc.unused) {
			t.Errorf("%s: %+v, %q, %v\nwant %+v, %q", tc.name, got, unused, err, tc.want, tc.unused)
		}
	}
	for _, client := range []string{"'both.pem'", "['both.pem']", "[['c.cert', 'c.key']]"} {
		if got, _, err := parseHosts([]byte("client = "+client), dir); err != nil || len(got.Certificates) != 1 {
			t.Errorf("client = %s: %d certificates, %v", client, len(got.Certificates), err)
		}
	}
	for text, want := range map[string]string{
		"server = ":                               "line 1",
		"server = 'ftp://r'":                      `server "ftp://r": want a URL`,
		"[host.'']":                               `host "": want a URL`,
		"[host.'https://u:p@m.test']":             "want a URL",
		"capabilities = ['fetch']":                `capabilities has "fetch"; want pull, resolve`,
		"dial_timeout = 'soon'":                   `dial_timeout is "soon"`,
		"ca = 'missing'":                          "ca: open",
		"ca = 7":                                  "ca is a int64",
		"client = ['a', ['b', 'c', 'd']]":         "client has a wrong type",
		"client = [['ca.crt', 'c.key']]":          "client: ca.crt",
		"[header]\nx = 1":                         "header.x is a int64",
		strings.Repeat("[host.'%d.test']\n", 101): "want at most 100",
	} {
		n := 0
		for strings.Contains(text, "%d") {
			text, n = strings.Replace(text, "%d", fmt.Sprint(n), 1), n+1
		}
		if _, _, err := parseHosts([]byte(text), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q in it", text, err, want)
		}
	}
}

func TestHostsDirectories(t *testing.T) {
	dir := t.TempDir()
	cert, key := clientCert(t)
	lay(t, dir, map[string]string{
		"a.test/hosts.toml": "server = 'a'", "b.test_5000_/hosts.toml": "server = 'b'", "b.test:5000/hosts.toml": "server = 'never'",
		"docker.test:5000/ca.crt": "CA", "docker.test:5000/me.cert": string(cert), "docker.test:5000/me.key": string(key), "bad.test/hosts.toml": "=",
		"localhost:5000/hosts.toml": "[host.'m.test']",
	})
	s := &Store{cfg: Config{HostsDir: dir, Registries: map[string]Registry{"own.test": {Server: "own"}, "*": {Server: "all"}}}}
	want := map[string]string{"a.test": "a", "b.test:5000": "b", "docker.test:5000": "", "own.test": "own", "c.test": "all", "127.0.0.1:5000": "all"}
	check := func() {
		t.Helper()
		for host, server := range want {
			if r, err := s.reach(host); err != nil || r.Server != server {
				t.Errorf("%s: %+v, %v; want the server %q", host, r, err, server)
			}
		}
	}
	check()
	if r, err := s.reach("docker.test:5000"); err != nil || string(r.CA) != "CA\n" || len(r.Certificates) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.reach("localhost:5000"); err != nil || !r.PlainHTTP || !r.SkipVerify || len(r.Mirrors) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.reach("bad.test"); err == nil || !strings.Contains(err.Error(), dir+"/bad.test/hosts.toml") {
		t.Errorf("a broken file: %v", err)
	}
	lay(t, dir, map[string]string{"_default/hosts.toml": "server = 'default'"}) // read at each pull
	maps.Copy(want, map[string]string{"c.test": "default", "127.0.0.1:5000": "default"})
	check()
	s = &Store{}
	for host, plain := range map[string]bool{"localhost:5000": true, "127.1.2.3:80": true, "[::1]:5000": true, "localhost": false, "localhost:443": false, "r.test:5000": false, "localhost.test:5000": false, "10.0.0.1:5000": false} {
		if r, err := s.reach(host); err != nil || r.PlainHTTP != plain {
			t.Errorf("%s: %+v, %v; want plain HTTP: %v", host, r, err, plain)
		}
	}
}

// Real servers are reached as files say: without TLS, by authorities and certificates of
// their own, below another path, with headers, for content alone.
func TestPullsAsHostsSay(t *testing.T) {
	needRoot(t)
	cert, key := clientCert(t)
	layer := archive(t, file("f", randomText(1000)))
	var plain, secure, mirror *server
	var at map[string]string // servers' addresses
	var dir string
	begin := func(t *testing.T) *Store {
		plain, secure, mirror, at = newServer(), newServer(), newServer(), map[string]string{}
		for name, s := range map[string]*server{"plain": plain, "secure": secure, "mirror": mirror} {
			s.image(t, "app", "1", nil, layer)
			h := httptest.NewUnstartedServer(http.StripPrefix("/api", s))
			if name == "plain" {
				h = httptest.NewUnstartedServer(s)
				h.Start()
			} else {
				if name == "secure" {
					h = httptest.NewUnstartedServer(s)
				}
				h.TLS = &tls.Config{ClientAuth: tls.RequestClientCert} //nolint:gosec // for tests
				h.StartTLS()
			}
			t.Cleanup(h.Close)
			at[name] = h.Listener.Addr().String()
			if c := h.Certificate(); c != nil {
				at[name+" CA"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
			}
		}
		dir = t.TempDir()
		s, _ := start(t, Config{RootDir: filepath.Join(t.TempDir(), "images"), OS: "linux", Architecture: "amd64", Reserve: 1, HostsDir: dir})
		return s
	}
	t.Run("a registry of the machine without TLS", func(t *testing.T) {
		s := begin(t)
		pull(t, s, at["plain"]+"/app:1")
	})
	t.Run("plain HTTP", func(t *testing.T) {
		s := begin(t)
		lay(t, dir, map[string]string{"r.test/hosts.toml": "server = 'http://" + at["plain"] + "'"})
		pull(t, s, "r.test/app:1")
	})
	t.Run("an authority, with a certificate of the client", func(t *testing.T) {
		s := begin(t)
		lay(t, dir, map[string]string{"r.test/ca.pem": at["secure CA"], "r.test/c.cert": string(cert), "r.test/c.key": string(key)})
		lay(t, dir, map[string]string{"r.test/hosts.toml": "server = 'https://" + at["secure"] + "'"})
		if _, err := s.PullImage(t.Context(), spec("r.test/app:1"), nil, nil); err == nil || !strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("without the authority: %v", err)
		}
		lay(t, dir, map[string]string{"r.test/hosts.toml": "server = 'https://" + at["secure"] + "'\nca = 'ca.pem'\nclient = [['c.cert', 'c.key']]"})
		shown := 0
		secure.before = func(_ http.ResponseWriter, r *http.Request) bool {
			shown = len(r.TLS.PeerCertificates)
			return false
		}
		pull(t, s, "r.test/app:1")
		if shown != 1 {
			t.Errorf("%d certificates of the client", shown)
		}
	})
	t.Run("no verification", func(t *testing.T) {
		s := begin(t)
		lay(t, dir, map[string]string{"r.test/hosts.toml": "server = 'https://" + at["secure"] + "'\nskip_verify = true"})
		pull(t, s, "r.test/app:1")
	})
	t.Run("a mirror below a path, with a header, for content alone", func(t *testing.T) {
		s := begin(t)
		var tokens []string
		for _, srv := range []*server{secure, mirror} {
			srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
				tokens = append(tokens, fmt.Sprintf("%t%s", srv == mirror, r.Header.Get("X-Token")))
				return false
			}
		}
		lay(t, dir, map[string]string{"r.test/ca.pem": at["secure CA"] + at["mirror CA"], "r.test/hosts.toml": "server = 'https://" + at["secure"] + "'\nca = 'ca.pem'\n" +
			"[host.'https://" + at["mirror"] + "/api']\nca = 'ca.pem'\ncapabilities = ['pull']\n[host.'https://" + at["mirror"] + "/api'.header]\nx-token = 't'"})
		pull(t, s, "r.test/app:1")
		if secure.count("manifests/1") != 1 || secure.count("blobs") != 0 || mirror.count("manifests/1") != 0 || mirror.count("blobs") != 2 {
			t.Errorf("asked: registry %v, mirror %v", secure.asked, mirror.asked)
		}
		for _, token := range tokens {
			if token != "truet" && token != "false" {
				t.Errorf("header %q", token)
			}
		}
	})
}

// No file ends the program, and what is read is what may be asked.
func FuzzHosts(f *testing.F) {
	f.Add("server = 'http://a.test'\n[host.'https://b.test/v2/x']\ncapabilities = ['pull']\nclient = [['a', 'b']]\n[host.'https://b.test/v2/x'.header]\na = 'b'")
	f.Fuzz(func(t *testing.T, text string) {
		r, _, err := parseHosts([]byte(text), t.TempDir())
		if err != nil {
			return
		}
		if _, err := (Config{RootDir: "/x", Registries: map[string]Registry{"r.test": r}}).withDefaults(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
