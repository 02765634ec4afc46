package kubeapi_test

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

func client(t testing.TB, srv *kubeapitest.Server) *kubeapi.Client {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a manager whose requests are approved each second, and later
// three times a minute; without an authority never.
func start(t *testing.T, srv *kubeapitest.Server, a *authority, cfg kubeapi.CredentialsConfig) (m *kubeapi.Credentials, stop func()) {
	t.Helper()
	if cfg.Template == nil {
		cfg.Template = func() *x509.CertificateRequest { return kubeapi.ClientCertificateTemplate("edge-1") }
	}
	cfg.Log = zaptest.NewLogger(t)
	m, err := kubeapi.NewCredentials(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Run(ctx) })
	if a != nil {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				a.approve(t, srv)
				wait := time.Second
				if n > 60 {
					wait = 20 * time.Second
				}
				select {
				case <-ctx.Done():
				case <-time.After(wait):
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return m, stop
}

func TestFirstCertificateAndRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
		var closed atomic.Int32
		m, stop := start(t, srv, a, kubeapi.CredentialsConfig{Store: s, Bootstrap: client(t, srv), API: client(t, srv), CloseConnections: func() { closed.Add(1) }})
		if c, err := m.ClientCertificate(); c != nil || !errors.Is(err, kubeapi.ErrNoClientCertificate) {
			t.Errorf("before the first: %v, %v", c, err)
		}
		<-m.Ready()
		current(t, s, "edge-1")
		time.Sleep(time.Second)
		if n := closed.Load(); n != 1 {
			t.Errorf("closed %d times after the first", n)
		}
		if _, err := os.Stat(filepath.Join(s.Dir, "kubelet-client.key.tmp")); err == nil {
			t.Error("the key of the request is still there")
		}
		first := m.Current()
		time.Sleep(69 * time.Hour)
		if m.Current() != first {
			t.Error("replaced too soon")
		}
		time.Sleep(22 * time.Hour)
		second := m.Current()
		if second == first {
			t.Fatal("not replaced after 91 %")
		}
		if n := closed.Load(); n != 1 {
			t.Error("connections are closed although their certificate is valid")
		}
		time.Sleep(6 * time.Hour)
		if n := closed.Load(); n != 2 {
			t.Errorf("closed %d times when the first certificate is about to expire", n)
		}
		if n := srv.Count("create", kubeapi.CSRs); n != 2 {
			t.Errorf("%d requests", n)
		}
		stop()
		if m, _ := start(t, srv, nil, kubeapi.CredentialsConfig{Store: s, API: client(t, srv)}); m.Current() == nil || m.Current().Leaf.SerialNumber.Cmp(second.Leaf.SerialNumber) != 0 {
			t.Error("a new start does not take what is stored")
		}
	})
}

func TestApprovedLateAndRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
		_, stop := start(t, srv, nil, kubeapi.CredentialsConfig{Store: s, Bootstrap: client(t, srv)})
		time.Sleep(2 * time.Hour) // nobody approves
		stop()
		m, _ := start(t, srv, nil, kubeapi.CredentialsConfig{Store: s, Bootstrap: client(t, srv)})
		time.Sleep(time.Minute)
		if n := len(srv.All(kubeapi.CSRs)); n != 1 {
			t.Errorf("%d requests; the first has to be found again", n)
		}
		a.approve(t, srv)
		time.Sleep(time.Second)
		if m.Current() == nil {
			t.Error("no certificate a second after the approval")
		}
	})
}

func TestDeniedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
		m, _ := start(t, srv, nil, kubeapi.CredentialsConfig{Store: s, Bootstrap: client(t, srv)})
		for range 24 * 60 {
			time.Sleep(time.Minute)
			deny(srv)
		}
		if n := len(srv.All(kubeapi.CSRs)); n < 3 || n > 160 {
			t.Errorf("%d requests in a day of refusals", n)
		}
		for range 20 {
			time.Sleep(time.Minute)
			a.approve(t, srv)
		}
		if m.Current() == nil {
			t.Error("no certificate once they are approved")
		}
	})
}

func TestServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
		m, _ := start(t, srv, a, kubeapi.CredentialsConfig{Store: s, API: client(t, srv)})
		<-m.Ready()
		first := m.Current()
		srv.Stop()
		time.Sleep(110 * time.Hour) // it has expired meanwhile
		if m.Current() != first {
			t.Errorf("got %v", m.Current())
		}
		current(t, s, "edge-1")
		srv.Start()
		time.Sleep(2 * time.Minute)
		if m.Current() == first {
			t.Error("not replaced when the server is back")
		}
	})
}

// Whoever is refused with one credential asks with the other.
func TestExpiredCertificate(t *testing.T) {
	for _, refused := range []string{"own", "bootstrap"} {
		synctest.Test(t, func(t *testing.T) {
			srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
			a.skew = -time.Hour * 200
			cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("edge-1"))
			a.skew = 0
			if _, err := s.Update(cert, key); err != nil {
				t.Fatal(err)
			}
			denied := kubeapitest.New()
			denied.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(401), kubeapitest.Any))
			cfg := kubeapi.CredentialsConfig{Store: s, API: client(t, denied), Bootstrap: client(t, srv)}
			if refused == "bootstrap" {
				cfg.API, cfg.Bootstrap = cfg.Bootstrap, cfg.API
			}
			m, _ := start(t, srv, a, cfg)
			if m.Current() == nil {
				t.Error("an expired certificate is not shown: the clock may be wrong")
			}
			time.Sleep(10 * time.Second)
			if c := m.Current(); c == nil || time.Now().After(c.Leaf.NotAfter) {
				t.Errorf("%s refused: not replaced", refused)
			}
		})
	}
}

// A clock that is far off must not have certificates replaced again and again.
func TestClockSkew(t *testing.T) {
	for _, skew := range []time.Duration{-500 * time.Hour, -95 * time.Hour, -12 * time.Hour, 12 * time.Hour, 500 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			srv, a := kubeapitest.New(), newAuthority(t)
			a.skew = skew
			m, _ := start(t, srv, a, kubeapi.CredentialsConfig{Store: newStore(t), Bootstrap: client(t, srv), API: client(t, srv)})
			<-m.Ready()
			time.Sleep(50 * time.Hour)
			if n := srv.Count("create", kubeapi.CSRs); n != 1 {
				t.Errorf("%v: %d requests in 50 hours of a life of 100", skew, n)
			}
			time.Sleep(50 * time.Hour)
			if n := srv.Count("create", kubeapi.CSRs); n < 2 {
				t.Errorf("%v: not replaced in 100 hours", skew)
			}
		})
	}
}

func TestTemplateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
		s.Prefix = "kubelet-server"
		var mu sync.Mutex
		var ip string
		template := func() *x509.CertificateRequest {
			mu.Lock()
			defer mu.Unlock()
			return kubeapi.ServingCertificateTemplate("edge-1", []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: ip}}, false)
		}
		reg := prometheus.NewRegistry()
		m, _ := start(t, srv, nil, kubeapi.CredentialsConfig{Purpose: kubeapi.ServingCertificate, Store: s, API: client(t, srv), Template: template, Metrics: reg})
		set := func(to string) { mu.Lock(); ip = to; mu.Unlock(); m.TemplateChanged() }
		time.Sleep(time.Hour)
		if srv.Count("create", kubeapi.CSRs) != 0 {
			t.Error("a request without a template")
		}
		if c := m.Current(); c != nil {
			t.Errorf("got %v", c)
		}
		set("10.0.0.1")
		synctest.Wait()
		if n := len(srv.All(kubeapi.CSRs)); n != 1 {
			t.Errorf("%d requests", n)
		}
		set("10.0.0.2") // while the first one waits
		time.Sleep(10 * time.Second)
		if n := len(srv.All(kubeapi.CSRs)); n != 2 && n != 1 {
			t.Errorf("%d requests", n)
		}
		for range 10 {
			a.approve(t, srv)
			time.Sleep(time.Second)
		}
		if c := m.Current(); c == nil || c.Leaf.IPAddresses[0].String() != "10.0.0.2" {
			t.Fatalf("got %+v", c)
		}
		set("10.0.0.3")
		for range 10 {
			time.Sleep(time.Second)
			a.approve(t, srv)
		}
		if got := m.Current().Leaf.IPAddresses[0].String(); got != "10.0.0.3" {
			t.Errorf("got %s", got)
		}
		set("") // no address for a while: what there is stays
		time.Sleep(time.Hour)
		if m.Current() == nil {
			t.Error("the certificate is gone")
		}
		families, err := reg.Gather()
		if err != nil || len(families) != 3 {
			t.Errorf("%d metrics, %v", len(families), err)
		}
	})
}

func TestStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
		blocked := s.Dir
		s.Dir = filepath.Join(blocked, "pki")
		put(t, s.Dir) // a file where the directory should be
		m, _ := start(t, srv, a, kubeapi.CredentialsConfig{Store: s, Bootstrap: client(t, srv)})
		time.Sleep(10 * time.Second)
		if m.Current() == nil {
			t.Fatal("a certificate that cannot be stored is not used")
		}
		if err := os.Remove(s.Dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		current(t, s, "edge-1")
	})
}

func TestInitialIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, a, s, other := kubeapitest.New(), newAuthority(t), newStore(t), newStore(t)
		cert, key := a.pair(t, kubeapi.ClientCertificateTemplate("edge-1"))
		initial, err := other.Update(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := start(t, srv, a, kubeapi.CredentialsConfig{Store: s, API: client(t, srv), Initial: initial})
		if m.Current() != initial {
			t.Error("not used")
		}
		time.Sleep(5 * time.Second)
		if m.Current() == initial {
			t.Error("not replaced")
		}
		current(t, s, "edge-1")
	})
}

func TestCredentialsConfig(t *testing.T) {
	_, err := kubeapi.NewCredentials(kubeapi.CredentialsConfig{Purpose: 7})
	for _, want := range []string{"Store", "Template", "API", "Purpose"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// However often it is tried, it is one request: the same key, and nothing signed
// anew, also where the key cannot be kept.
func TestTriesAreOneRequest(t *testing.T) {
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			srv, a, s := kubeapitest.New(), newAuthority(t), newStore(t)
			if !kept {
				file := filepath.Join(s.Dir, "a-file")
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				s.Dir = filepath.Join(file, "no-directory")
			}
			srv.Fail(kubeapitest.Refuse(-1, kubeapitest.Status(503), kubeapitest.Of("create", kubeapi.CSRs)))
			m, _ := start(t, srv, a, kubeapi.CredentialsConfig{Store: s, Bootstrap: client(t, srv).Once()})
			time.Sleep(time.Hour)
			bodies := map[string]int{}
			for _, q := range srv.Requests() {
				if q.Verb == "create" {
					bodies[string(q.Body)]++
				}
			}
			if len(bodies) != 1 {
				t.Errorf("kept %t: %d requests", kept, len(bodies))
			}
			srv.Heal()
			time.Sleep(2 * time.Minute)
			if m.Current() == nil {
				t.Errorf("kept %t: no certificate", kept)
			}
		})
	}
}
