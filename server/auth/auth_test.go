package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/nodewright/nodewright/server/auth"
)

func TestBelow(t *testing.T) {
	for _, tc := range []struct {
		path, base string
		want       bool
	}{
		{"/foo", "/foo", true}, {"/foo/", "/foo", true}, {"/foo/bar", "/foo", true}, {"/foo/bar/baz", "/foo", true},
		{"/foo", "/foo/", true}, {"/foo/", "/foo/", true}, {"/foo/bar", "/foo/", true},
		{"/foobar", "/foo", false}, {"/foobar", "/foo/", false}, {"/fo", "/foo", false}, {"/", "/foo", false}, {"", "/foo", false},
		{"/bar/foo", "/foo", false},
	} {
		if got := auth.Below(tc.path, tc.base); got != tc.want {
			t.Errorf("Below(%q, %q) = %v", tc.path, tc.base, got)
		}
	}
}

func TestAttributes(t *testing.T) {
	for path, want := range map[string]string{
		"/stats": "stats", "/stats/summary": "stats", "/statsx": "proxy",
		"/metrics": "metrics", "/metrics/cadvisor": "metrics", "/metrics/resource": "metrics", "/metricsx": "proxy",
		"/logs": "log", "/logs/": "log", "/logs/syslog": "log", "/logsx": "proxy",
		"/checkpoint/ns/pod/c": "checkpoint", "/statusz": "statusz", "/flagz": "configz",
		"/pods": "pods proxy", "/pods/": "pods proxy", "/runningpods/": "pods proxy", "/podsx": "proxy",
		"/healthz": "healthz proxy", "/healthz/ping": "healthz proxy", "/healthz/syncloop": "healthz proxy",
		"/configz": "configz proxy", "/exec/ns/pod/c": "proxy", "/attach/ns/pod/c": "proxy", "/portForward/ns/pod": "proxy",
		"/containerLogs/ns/pod/c": "proxy", "/run/ns/pod/c": "proxy", "/debug/pprof/": "proxy", "/debug/flags/v": "proxy",
		"/": "proxy", "": "proxy", "/unknown": "proxy",
	} {
		for method, verb := range map[string]string{
			"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "get", "OPTIONS": "",
		} {
			r := httptest.NewRequest(method, "http://node/", nil)
			r.URL.Path = path
			var got []string
			for _, a := range auth.Of(&auth.User{Name: "u"}, r, "n") {
				got = append(got, a.Subresource)
				if a.Verb != verb || a.Node != "n" || a.Path != path || a.User.Name != "u" {
					t.Errorf("%s %s: %+v", method, path, a)
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v, want %s", path, got, want)
			}
		}
	}
}

func knows(name string, err error) auth.Authenticator {
	return auth.AuthenticatorFunc(func(*http.Request) (*auth.User, error) {
		if name == "" {
			return nil, err
		}
		return &auth.User{Name: name}, err
	})
}

func TestFirstOfAndAnonymous(t *testing.T) {
	wrong := errors.New("wrong")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, tc := range []struct {
		name string
		a    auth.Authenticator
		want string
	}{
		{"first", auth.FirstOf(knows("a", nil), knows("b", nil)), "a [system:authenticated]"},
		{"second", auth.FirstOf(knows("", nil), knows("b", nil)), "b [system:authenticated]"},
		{"second after an error", auth.FirstOf(knows("", wrong), knows("b", nil)), "b [system:authenticated]"},
		{"none", auth.FirstOf(knows("", nil)), "nobody"},
		{"error", auth.FirstOf(knows("", nil), knows("", wrong)), "wrong"},
		{"user and error", auth.FirstOf(knows("a", wrong)), "wrong"},
		{"anonymous", auth.Anonymous(auth.FirstOf(knows("", nil))), "system:anonymous [system:unauthenticated]"},
		{"not anonymous", auth.Anonymous(auth.FirstOf(knows("a", nil))), "a [system:authenticated]"},
		{"bad, not anonymous", auth.Anonymous(auth.FirstOf(knows("", wrong))), "wrong"},
	} {
		u, err := tc.a.Authenticate(r)
		got := "nobody"
		if err != nil {
			got = err.Error()
		} else if u != nil {
			got = fmt.Sprint(u.Name, " ", u.Groups)
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// authAuthority signs certificates.
type authAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authAuthority) sign(t *testing.T, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if template.IsCA {
		a.cert, a.key = c, key
	}
	return c
}

func TestClientCerts(t *testing.T) {
	newCA := func() *authAuthority {
		a := &authAuthority{}
		a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
		return a
	}
	ca, other := newCA(), newCA()
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	name := pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}}
	for _, tc := range []struct {
		test string
		cert *x509.Certificate
		want string
	}{
		{"good", ca.sign(t, &x509.Certificate{Subject: name, ExtKeyUsage: client}), "kube-apiserver [system:masters]"},
		{"another authority", other.sign(t, &x509.Certificate{Subject: name, ExtKeyUsage: client}), "unknown authority"},
		{"a server's", ca.sign(t, &x509.Certificate{Subject: name, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), "incompatible key usage"},
		{"expired", ca.sign(t, &x509.Certificate{Subject: name, ExtKeyUsage: client, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0)}), "expired"},
		{"nobody's", ca.sign(t, &x509.Certificate{ExtKeyUsage: client}), "nobody"},
		{"none", nil, "nobody"},
	} {
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{}
		if tc.cert != nil {
			r.TLS.PeerCertificates = []*x509.Certificate{tc.cert}
		}
		u, err := auth.ClientCerts(func() *x509.CertPool { return pool }).Authenticate(r)
		got := "nobody"
		if err != nil {
			got = err.Error()
		} else if u != nil {
			got = fmt.Sprint(u.Name, " ", u.Groups)
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %s", tc.test, got, tc.want)
		}
		if u, err := auth.ClientCerts(func() *x509.CertPool { return nil }).Authenticate(r); u != nil || err != nil {
			t.Errorf("%s without authorities: %v, %v", tc.test, u, err)
		}
	}
}

// tokens knows "good", and fails when it is told to.
type tokens struct {
	asked atomic.Int32
	err   error
	wait  time.Duration
}

func (k *tokens) ReviewToken(_ context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	k.asked.Add(1)
	time.Sleep(k.wait)
	if k.err != nil {
		return nil, k.err
	}
	out := r.DeepCopy()
	if r.Spec.Token == "good" {
		out.Status.Authenticated = true
		out.Status.User = authenticationv1.UserInfo{
			Username: "metrics", UID: "7", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}
	}
	return out, nil
}

func withToken(header string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", header)
	return r
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tokens{}
		a := auth.Tokens(auth.TokensConfig{Reviewer: k})
		for header, want := range map[string]string{
			"Bearer good": "metrics", "bearer  good ": "metrics", "Bearer bad": "error", "Basic good": "nobody",
			"Bearer": "nobody", "": "nobody", "good": "nobody", "Bearer " + strings.Repeat("x", 65<<10): "error",
		} {
			u, err := a.Authenticate(withToken(header))
			got := "nobody"
			if err != nil {
				got = "error"
			} else if u != nil {
				got = u.Name
			}
			if got != want {
				t.Errorf("%.20q: %s, want %s (%v)", header, got, want, err)
			}
		}
		if n := k.asked.Load(); n != 2 {
			t.Errorf("%d reviews of two tokens", n)
		}
		time.Sleep(2*time.Minute - time.Second)
		_, _ = a.Authenticate(withToken("Bearer good"))
		if n := k.asked.Load(); n != 2 {
			t.Errorf("%d reviews before the answer was 2 minutes old", n)
		}
		time.Sleep(time.Second)
		u, err := a.Authenticate(withToken("Bearer good"))
		if n := k.asked.Load(); n != 3 || err != nil {
			t.Errorf("%d reviews after 2 minutes, %v", n, err)
		}
		if u.UID != "7" || !slices.Equal(u.Groups, []string{"g"}) || !slices.Equal(u.Extra["k"], []string{"v"}) {
			t.Errorf("%+v", u)
		}
	})
}

// A review that fails is not remembered, and many at once are one.
func TestReviewsThatFailAndMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tokens{err: errors.New("away")}
		a := auth.Tokens(auth.TokensConfig{Reviewer: k})
		for range 2 {
			if _, err := a.Authenticate(withToken("Bearer good")); !errors.Is(err, k.err) {
				t.Errorf("%v, want %v", err, k.err)
			}
		}
		if n := k.asked.Load(); n != 2 {
			t.Errorf("%d reviews, want 2", n)
		}
		k.err, k.wait = nil, time.Second
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if u, err := a.Authenticate(withToken("Bearer good")); err != nil || u.Name != "metrics" {
					t.Errorf("%v, %v", u, err)
				}
			})
		}
		wg.Wait()
		if n := k.asked.Load(); n != 3 {
			t.Errorf("%d reviews, want one more", n)
		}
	})
}

// The caches are bounded, whatever comes.
func TestManyTokens(t *testing.T) {
	k := &tokens{}
	a := auth.Tokens(auth.TokensConfig{Reviewer: k})
	for i := range 5000 {
		_, _ = a.Authenticate(withToken(fmt.Sprint("Bearer ", i)))
	}
	before := k.asked.Load()
	for i := range 5000 {
		_, _ = a.Authenticate(withToken(fmt.Sprint("Bearer ", i)))
	}
	if known := 5000 - (k.asked.Load() - before); known > 1024 {
		t.Errorf("%d answers were kept, want at most 1024", known)
	}
}

// access allows "pods".
type access struct {
	asked atomic.Int32
	errs  []error // of the next reviews
	last  authorizationv1.SubjectAccessReviewSpec
}

func (k *access) ReviewAccess(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	k.asked.Add(1)
	k.last = r.Spec
	if len(k.errs) > 0 {
		err := k.errs[0]
		k.errs = k.errs[1:]
		return nil, err
	}
	out := r.DeepCopy()
	out.Status.Allowed = r.Spec.ResourceAttributes.Subresource != "proxy"
	out.Status.Denied = r.Spec.ResourceAttributes.Subresource == "log"
	return out, nil
}

func TestAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &access{}
		a := auth.Access(auth.AccessConfig{Reviewer: k})
		ask := func(sub string) bool {
			t.Helper()
			ok, _, err := a.Authorize(t.Context(), auth.Attributes{
				User: &auth.User{Name: "u", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}},
				Verb: "get", Node: "n", Subresource: sub, Path: "/x",
			})
			if err != nil {
				t.Error(err)
			}
			return ok
		}
		if !ask("pods") || ask("proxy") || ask("log") {
			t.Error("not what the review said")
		}
		want := authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "log", Name: "n"}
		if got := *k.last.ResourceAttributes; got != want || k.last.User != "u" || k.last.UID != "1" || k.last.Extra["k"][0] != "v" {
			t.Errorf("%+v", k.last)
		}
		time.Sleep(29 * time.Second)
		ask("proxy")
		if n := k.asked.Load(); n != 3 {
			t.Errorf("%d reviews before a no was 30 s old", n)
		}
		time.Sleep(time.Second)
		ask("proxy")
		ask("pods")
		if n := k.asked.Load(); n != 4 {
			t.Errorf("%d reviews after 30 s, want one more", n)
		}
		time.Sleep(5 * time.Minute)
		ask("pods")
		if n := k.asked.Load(); n != 5 {
			t.Errorf("%d reviews after 5 minutes, want one more", n)
		}
	})
}
