package kubeapi_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nodewright/nodewright/kubeapi"
)

func newStore(t testing.TB) *kubeapi.CertificateStore {
	return &kubeapi.CertificateStore{Dir: t.TempDir(), Prefix: "kubelet-client"}
}

func put(t testing.TB, path string, parts ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Join(parts, []byte("\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func current(t testing.TB, s *kubeapi.CertificateStore, want string) {
	t.Helper()
	pair, err := s.Current()
	if err != nil || pair.Leaf.Subject.CommonName != "system:node:"+want {
		t.Errorf("got %v, %v; want %s", pair, err, want)
	}
}

func TestStore(t *testing.T) {
	a, s := newAuthority(t), newStore(t)
	if _, err := s.Current(); !errors.Is(err, kubeapi.ErrNoCertificate) {
		t.Errorf("empty: %v", err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // all in one second
		cert, key := a.pair(t, kubeapi.ClientCertificateTemplate(name))
		if pair, err := s.Update(cert, key); err != nil || pair.Leaf == nil {
			t.Fatal(err)
		}
		current(t, s, name)
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("%v: want the link, the pair in use and two before", entries)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", e.Name(), info.Mode())
		}
	}
	if target, err := os.Readlink(s.CurrentPath()); err != nil || !filepath.IsAbs(target) {
		t.Errorf("link to %q, %v", target, err)
	}
}

func TestStoreReadsWhatThereIs(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("a"))
	chain := append(bytes.Clone(cert), a.issue(t, kubeapi.ClientCertificateTemplate("ca"), a.key.Public())...)
	for _, tc := range []struct {
		name  string
		write func(s *kubeapi.CertificateStore)
	}{
		{"cert, then key", func(s *kubeapi.CertificateStore) { put(t, s.CurrentPath(), cert, key) }},
		{"key, then cert", func(s *kubeapi.CertificateStore) { put(t, s.CurrentPath(), key, cert) }},
		{"a chain", func(s *kubeapi.CertificateStore) { put(t, s.CurrentPath(), chain, key) }},
		{"named files", func(s *kubeapi.CertificateStore) {
			s.CertFile, s.KeyFile = filepath.Join(s.Dir, "x"), filepath.Join(s.Dir, "y")
			put(t, s.CertFile, cert)
			put(t, s.KeyFile, key)
		}},
		{"crt and key", func(s *kubeapi.CertificateStore) {
			put(t, filepath.Join(s.Dir, "kubelet-client.crt"), cert)
			put(t, filepath.Join(s.Dir, "kubelet-client.key"), key)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			tc.write(s)
			current(t, s, "a")
		})
	}
}

func TestStoreRefuses(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("a"))
	_, otherKey := a.pair(t, kubeapi.ClientCertificateTemplate("b"))
	for name, pair := range map[string][2][]byte{
		"no certificate": {[]byte("garbage"), key}, "no key": {cert, []byte("garbage")}, "another's key": {cert, otherKey}, "nothing": {nil, nil},
	} {
		s := newStore(t)
		if _, err := s.Update(cert, key); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Readlink(s.CurrentPath())
		if _, err := s.Update(pair[0], pair[1]); err == nil {
			t.Errorf("%s: no error", name)
		}
		if after, _ := os.Readlink(s.CurrentPath()); after != before {
			t.Errorf("%s: the link moved", name)
		}
	}
	for _, file := range []string{"current", "updated"} {
		s := newStore(t)
		put(t, filepath.Join(s.Dir, "kubelet-client-"+file+".pem"), cert, key)
		if _, err := s.Update(cert, key); err == nil || !strings.Contains(err.Error(), "want a link") {
			t.Errorf("a file at %s: %v", file, err)
		}
	}
	s := newStore(t)
	put(t, s.CurrentPath(), []byte("garbage"))
	if _, err := s.Current(); err == nil || errors.Is(err, kubeapi.ErrNoCertificate) {
		t.Errorf("garbage: %v", err)
	}
}

// Whatever step a crash comes after, there is a whole pair, and the next update
// works.
func TestStoreCrashes(t *testing.T) {
	a := newAuthority(t)
	oldCert, oldKey := a.pair(t, kubeapi.ClientCertificateTemplate("old"))
	newCert, newKey := a.pair(t, kubeapi.ClientCertificateTemplate("new"))
	file := func(s *kubeapi.CertificateStore) string {
		return filepath.Join(s.Dir, "kubelet-client-2999-01-01-00-00-00.pem")
	}
	link := func(s *kubeapi.CertificateStore, name, to string) {
		if err := os.Symlink(to, filepath.Join(s.Dir, "kubelet-client-"+name+".pem")); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name  string
		crash func(s *kubeapi.CertificateStore)
		want  string
	}{
		{"nothing written", func(*kubeapi.CertificateStore) {}, "old"},
		{"an empty file", func(s *kubeapi.CertificateStore) { put(t, file(s)) }, "old"},
		{"half a file", func(s *kubeapi.CertificateStore) { put(t, file(s), newCert[:len(newCert)/2]) }, "old"},
		{"a whole file", func(s *kubeapi.CertificateStore) { put(t, file(s), newCert, newKey) }, "old"},
		{"the next link", func(s *kubeapi.CertificateStore) { put(t, file(s), newCert, newKey); link(s, "updated", file(s)) }, "old"},
		{"the kubelet's gap", func(s *kubeapi.CertificateStore) {
			put(t, file(s), newCert, newKey)
			link(s, "updated", file(s))
			os.Remove(s.CurrentPath())
		}, "new"},
		{"all", func(s *kubeapi.CertificateStore) {
			put(t, file(s), newCert, newKey)
			os.Remove(s.CurrentPath())
			link(s, "current", file(s))
		}, "new"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStore(t)
			if _, err := s.Update(oldCert, oldKey); err != nil {
				t.Fatal(err)
			}
			tc.crash(s)
			current(t, s, tc.want)
			cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("third"))
			if _, err := s.Update(cert, key); err != nil {
				t.Fatal(err)
			}
			current(t, s, "third")
		})
	}
}

func TestStoreHasAPairAtEveryMoment(t *testing.T) {
	a, s := newAuthority(t), newStore(t)
	cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("a"))
	if _, err := s.Update(cert, key); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := tls.LoadX509KeyPair(s.CurrentPath(), s.CurrentPath()); err != nil {
				t.Errorf("a reader found %v", err)
				return
			}
		}
	})
	for range 30 {
		if _, err := s.Update(cert, key); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func FuzzStore(f *testing.F) {
	a := newAuthority(f)
	cert, key := a.pair(f, kubeapi.ClientCertificateTemplate("a"))
	f.Add(bytes.Join([][]byte{cert, key}, nil))
	f.Add(bytes.Join([][]byte{key, cert, cert}, []byte("x\n")))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newStore(t)
		put(t, s.CurrentPath(), text)
		if pair, err := s.Current(); err == nil && (pair.Leaf == nil || pair.PrivateKey == nil) {
			t.Error("half a pair")
		}
		os.Remove(s.CurrentPath())
		if _, err := s.Update(text, text); err == nil {
			if _, err := s.Current(); err != nil {
				t.Errorf("stored, and not read again: %v", err)
			}
		}
	})
}
