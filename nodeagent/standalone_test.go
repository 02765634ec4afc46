package nodeagent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// signer signs the certificates of clients.
type signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate in PEM
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t, file: filepath.Join(t.TempDir(), "ca.crt")}
	var der []byte
	der, s.key = s.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	var err error
	if s.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *signer) sign(c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, by := s.cert, s.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err != nil {
		s.t.Fatal(err)
	}
	return der, key
}

// client is a certificate in somebody's name.
func (s *signer) client(name string) []tls.Certificate {
	s.t.Helper()
	der, key := s.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
}

// caller asks the API of a node as curl and Prometheus do, with the certificate
// that the node has signed itself as the one authority that it trusts.
func caller(t *testing.T, n *Node, certs []tls.Certificate) func(path string, head ...string) (int, string) {
	t.Helper()
	api, err := n.nodeAPI()
	if err != nil || api == nil || api.certs == nil {
		t.Fatal("there is no HTTPS", api, err)
	}
	srv := httptest.NewUnstartedServer(api.server.Handler())
	srv.TLS = api.certs.TLS()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	own, err := os.ReadFile(filepath.Join(n.builder.Config.CertDir, "kubelet.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(own)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "n", Certificates: certs}}}
	t.Cleanup(client.CloseIdleConnections)
	return func(path string, head ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range head {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

// A node that stands alone lets in whom its configuration does, by certificate or
// as nobody, and nobody else.
func TestStandaloneHTTPS(t *testing.T) {
	ca, stranger := newSigner(t), newSigner(t)
	const always = "authorization: {mode: AlwaysAllow}\n"
	for name, tc := range map[string]struct {
		conf  string
		certs []tls.Certificate
		head  string
		want  int
	}{
		"a known certificate":      {fmt.Sprintf("authentication: {x509: {clientCAFile: %s}}\n", ca.file), ca.client("scraper"), "", 200},
		"a stranger's":             {fmt.Sprintf("authentication: {x509: {clientCAFile: %s}}\n", ca.file), stranger.client("scraper"), "", 401},
		"none":                     {fmt.Sprintf("authentication: {x509: {clientCAFile: %s}}\n", ca.file), nil, "", 401},
		"a token":                  {fmt.Sprintf("authentication: {x509: {clientCAFile: %s}}\n", ca.file), nil, "Authorization: Bearer abc", 401},
		"nobody":                   {"authentication: {anonymous: {enabled: true}}\n", nil, "", 200},
		"nobody, beside the known": {fmt.Sprintf("authentication: {x509: {clientCAFile: %s}, anonymous: {enabled: true}}\n", ca.file), nil, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, always+tc.conf)
			o.Metrics, o.Parts = prometheus.NewRegistry(), Standard()
			n, err := New(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = n.Close() }()
			ask := caller(t, n, tc.certs)
			var head []string
			if tc.head != "" {
				head = append(head, tc.head)
			}
			for _, path := range []string{"/healthz", "/pods", "/metrics", "/metrics/probes", "/configz", "/statusz"} {
				if code, body := ask(path, head...); code != tc.want {
					t.Errorf("%s = %d %.100s, want %d", path, code, body, tc.want)
				}
			}
		})
	}
}

// Prometheus gets what it can read, whichever of its formats it would rather have.
func TestStandaloneScrape(t *testing.T) {
	ca := newSigner(t)
	o := options(t, "authorization: {mode: AlwaysAllow}\nauthentication: {webhook: {enabled: false}, x509: {clientCAFile: "+ca.file+"}}\n")
	core, logs := observer.New(zapcore.WarnLevel)
	o.Log, o.Metrics, o.Parts = zap.New(core), prometheus.NewRegistry(), Standard()
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	ask := caller(t, n, ca.client("prometheus"))
	for _, format := range []string{
		"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
	} {
		code, body := ask("/metrics", "Accept: "+format)
		if code != 200 || !strings.Contains(body, "\nkubelet_http_inflight_requests{") {
			t.Errorf("%s: %d %.300s", format, code, body)
		}
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "#") && len(strings.Fields(line)) < 2 {
				t.Errorf("%s: line %q", format, line)
			}
		}
	}
	if got := logs.FilterMessageSnippet("no effect").Len() + logs.FilterMessageSnippet("not served").Len(); got != 0 {
		t.Errorf("log %+v", logs.All())
	}
}

// Where nobody could be let in there is no port, and the log says why.
func TestStandaloneWithoutHTTPS(t *testing.T) {
	for conf, want := range map[string]string{
		"":                                     "authorization.mode: Webhook needs an API server",
		"enableServer: false\n":                "",
		"authorization: {mode: AlwaysAllow}\n": "authentication: without an API server no client can authenticate",
		"authentication: {anonymous: {enabled: true}}\n": "authorization.mode: Webhook needs an API server",
	} {
		o := options(t, conf)
		core, logs := observer.New(zapcore.WarnLevel)
		o.Log = zap.New(core)
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		api, err := n.nodeAPI()
		_ = n.Close()
		if api != nil || err != nil {
			t.Errorf("%q: %+v, %v", conf, api, err)
		}
		said := logs.FilterMessage("node API is not served over HTTPS").All()
		if want == "" && len(said) > 0 || want != "" && (len(said) != 1 || !strings.Contains(fmt.Sprint(said[0].ContextMap()["error"]), want)) {
			t.Errorf("%q: log %+v, want %q", conf, said, want)
		}
		if exists(o.Config.CertDir) {
			t.Errorf("%q: it has made a certificate", conf)
		}
	}
}

// A node's certificates are its own while it runs alone, too.
func TestStandaloneCertificatesAreLocked(t *testing.T) {
	o := options(t, "authorization: {mode: AlwaysAllow}\nauthentication: {anonymous: {enabled: true}}\n")
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	other := options(t, "authorization: {mode: AlwaysAllow}\nauthentication: {anonymous: {enabled: true}}\n", "--cert-dir", o.Config.CertDir)
	if second, err := New(t.Context(), other); err == nil {
		_ = second.Close()
		t.Error("two nodes have one directory of certificates")
	}
}
