package server_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/server"
)

// pairIn makes a pair in a directory of its own and returns its files.
func pairIn(t *testing.T, dir, host string) (cert, key string) {
	t.Helper()
	if _, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: host, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
}

// shown is the certificate that a client would see.
func shown(t *testing.T, c *server.Certs) *x509.Certificate {
	t.Helper()
	pair, err := c.TLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	cert, key := pairIn(t, dir, "node-1")
	first, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(key); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", fi.Mode(), err)
	}
	c, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	leaf := shown(t, c)
	if err := leaf.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
	if err := leaf.VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
	if again, _ := os.ReadFile(cert); !bytes.Equal(first, again) {
		t.Error("a pair that can be read was made anew")
	}
	for what, harm := range map[string]func() error{
		"no key":      func() error { return os.Remove(key) },
		"garbage":     func() error { return os.WriteFile(cert, []byte("garbage"), 0o600) },
		"no cert":     func() error { return os.Remove(cert) },
		"another key": func() error { _, k := pairIn(t, t.TempDir(), "x"); return os.Rename(k, key) },
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		pairIn(t, dir, "node-1")
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		o    server.TLSOptions
		want string
	}{
		{server.TLSOptions{}, ""},
		{server.TLSOptions{MinVersion: "VersionTLS13", Curves: []int32{29, 23, 4588}}, ""},
		{server.TLSOptions{CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA"}}, ""},
		{server.TLSOptions{MinVersion: "VersionTLS13", CipherSuites: []string{"TLS_AES_128_GCM_SHA256"}}, ""},
		{server.TLSOptions{MinVersion: "TLS1.2"}, `tlsMinVersion is "TLS1.2"; want one of VersionTLS10, `},
		{server.TLSOptions{CipherSuites: []string{"AES"}}, `tlsCipherSuites has "AES"; want some of `},
		{server.TLSOptions{Curves: []int32{29, 7}}, `tlsCurvePreferences has 7; want some of 23 (CurveP256), `},
		{server.TLSOptions{Curves: []int32{-65513}}, "has -65513"}, // whose last 16 bits are 23
		{server.TLSOptions{MinVersion: "a", CipherSuites: []string{"b"}, Curves: []int32{1}}, `has 1;`},
	} {
		c, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: "node-1", Options: tc.o})
		if tc.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", tc.o, err)
			} else if conf := c.TLS(); conf.MinVersion < tls.VersionTLS12 || len(conf.CipherSuites) != len(tc.o.CipherSuites) || len(conf.CurvePreferences) != len(tc.o.Curves) {
				t.Errorf("%+v: %+v", tc.o, conf)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.o, err, tc.want)
		}
	}
}

func TestServingWrongConfig(t *testing.T) {
	dir := t.TempDir()
	cert, key := pairIn(t, dir, "node-1")
	for _, tc := range []struct {
		c    server.CertsConfig
		want string
	}{
		{server.CertsConfig{}, "required"},
		{server.CertsConfig{CertDir: dir}, "CertsConfig.Host"},
		{server.CertsConfig{CertFile: cert}, "want both or none"},
		{server.CertsConfig{CertFile: cert, KeyFile: dir + "/none"}, "no such file"},
		{server.CertsConfig{CertFile: key, KeyFile: cert}, "certificate"},
		{server.CertsConfig{CertFile: cert, KeyFile: key, ClientCAFile: dir + "/none"}, "client authorities"},
		{server.CertsConfig{CertFile: cert, KeyFile: key, ClientCAFile: key}, "the file has no certificate"},
		{server.CertsConfig{CertFile: cert, KeyFile: key, Recheck: -1}, "Recheck"},
	} {
		if _, err := server.NewCerts(tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.c, err, tc.want)
		}
	}
}

func TestCertificateOfAManager(t *testing.T) {
	var pair *tls.Certificate
	c, err := server.NewCerts(server.CertsConfig{Certificate: func() *tls.Certificate { return pair }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.TLS().GetCertificate(nil); !errors.Is(err, server.ErrNoCertificate) {
		t.Errorf("%v, want %v", err, server.ErrNoCertificate)
	}
	pair = &tls.Certificate{}
	if got, err := c.TLS().GetCertificate(nil); got != pair || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// running has Certs whose files are watched, and says who is shown in the end.
func running(t *testing.T, cfg server.CertsConfig) (c *server.Certs, becomes func(cond func() bool, what string)) {
	t.Helper()
	c, err := server.NewCerts(cfg)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, c.Run)
	return c, func(cond func() bool, what string) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(5 * time.Millisecond) { // files and inotify are real
			if time.Now().After(deadline) {
				t.Fatalf("never %s", what)
			}
		}
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// Files may be removed and made anew, or come with another directory; what is
// wrong in between changes nothing.
func TestReload(t *testing.T) {
	base := t.TempDir()
	live := filepath.Join(base, "live")
	cert, key := pairIn(t, live, "first")
	core, seen := observer.New(zap.WarnLevel)
	c, becomes := running(t, server.CertsConfig{
		CertFile: cert, KeyFile: key, ClientCAFile: cert, Recheck: 100 * time.Millisecond, Log: zap.New(core),
	})
	is := func(host string) func() bool {
		return func() bool { return shown(t, c).VerifyHostname(host) == nil }
	}
	becomes(is("first"), "the first")

	// Remove and create.
	if err := errors.Join(os.Remove(cert), os.Remove(key)); err != nil {
		t.Fatal(err)
	}
	pairIn(t, live, "second")
	becomes(is("second"), "the second")

	// A bad pair.
	if err := os.WriteFile(cert, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	warned := func(about string) func() bool {
		return func() bool {
			for _, e := range seen.All() {
				if text, _ := e.ContextMap()["error"].(string); strings.HasPrefix(text, about) && e.Message == "failed to read certificate files; using the former ones" {
					return true
				}
			}
			return false
		}
	}
	becomes(warned("certificate "), "told of the bad pair")
	becomes(warned("client authorities "), "told of the bad authorities")
	if !is("second")() {
		t.Error("a bad pair replaced a good one")
	}
	if c.ClientCAs() == nil {
		t.Error("bad authorities replaced good ones")
	}

	// The whole directory.
	other := filepath.Join(base, "other")
	pairIn(t, other, "third")
	before := c.ClientCAs()
	move(t, live, filepath.Join(base, "old"))
	move(t, other, live)
	becomes(is("third"), "the third")
	becomes(func() bool { return !c.ClientCAs().Equal(before) }, "other authorities")
}

// A link that leads elsewhere, as in a mounted Secret.
func TestReloadByLink(t *testing.T) {
	base := t.TempDir()
	pairIn(t, filepath.Join(base, "v1"), "first")
	pairIn(t, filepath.Join(base, "v2"), "second")
	link := filepath.Join(base, "data")
	if err := os.Symlink("v1", link); err != nil {
		t.Fatal(err)
	}
	c, becomes := running(t, server.CertsConfig{CertFile: filepath.Join(link, "kubelet.crt"), KeyFile: filepath.Join(link, "kubelet.key"), Recheck: 100 * time.Millisecond})
	if err := os.Symlink("v2", link+".new"); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	move(t, link+".new", link)
	becomes(func() bool { return shown(t, c).VerifyHostname("second") == nil }, "the second")
}

// Names that come and go count in the whole directory, what is written only for the files
// and what they lead to: a log beside them may be written all the time.
func TestConcerns(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("real.crt"), nil, 0o600), os.Symlink("real.crt", at("ca.crt"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		op   fsnotify.Op
		want bool
	}{
		{at("ca.crt"), fsnotify.Write, true},
		{at("real.crt"), fsnotify.Write, true},
		{at("real.crt"), fsnotify.Chmod, true},
		{at("audit.log"), fsnotify.Write, false},
		{at("audit.log"), fsnotify.Chmod, false},
		{at("audit.log"), fsnotify.Chmod | fsnotify.Remove, true},
		{at("..data"), fsnotify.Create, true},
		{at("..data"), fsnotify.Rename, true},
		{dir, fsnotify.Remove, true},
		{dir, fsnotify.Create, true},
		{dir + "-other", fsnotify.Create, false},
		{filepath.Join(dir, "below", "ca.crt"), fsnotify.Create, false},
	} {
		if got := server.Concerns(fsnotify.Event{Name: c.path, Op: c.op}, []string{at("ca.crt")}); got != c.want {
			t.Errorf("%v of %s: %v, want %v", c.op, c.path, got, c.want)
		}
	}
}

// A file that a link leads to is noticed when it is written in its place.
func TestReloadInPlace(t *testing.T) {
	base := t.TempDir()
	live := filepath.Join(base, "live")
	cert, key := pairIn(t, live, "first")
	link := filepath.Join(live, "current.crt")
	if err := os.Symlink("kubelet.crt", link); err != nil {
		t.Fatal(err)
	}
	c, becomes := running(t, server.CertsConfig{CertFile: link, KeyFile: key, Recheck: time.Hour})
	cert2, key2 := pairIn(t, filepath.Join(base, "other"), "second")
	becomes(func() bool {
		for from, to := range map[string]string{cert2: cert, key2: key} { // the watch may begin after the first time
			b, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return shown(t, c).VerifyHostname("second") == nil
	}, "the second")
}
