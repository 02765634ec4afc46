package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/nodewright/nodewright/server/auth"
)

// hanging is an API server that answers to "known" until it hangs.
type hanging struct{ from time.Time }

func (h *hanging) wait(ctx context.Context) error {
	if time.Now().Before(h.from) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) ReviewToken(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	out := r.DeepCopy()
	out.Status.Authenticated = r.Spec.Token == "known"
	out.Status.User.Username = r.Spec.Token
	return out, h.wait(ctx)
}

func (h *hanging) ReviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	out := r.DeepCopy()
	out.Status.Allowed = true
	return out, h.wait(ctx)
}

// While the API server hangs, those whose requests cannot be judged without it
// are in nobody's way: not in that of a client with a certificate, nor of a token
// that is known.
func TestStrangersWhileTheAPIServerHangs(t *testing.T) {
	for _, tc := range []struct {
		name      string
		anonymous bool
		stranger  func(r *http.Request, i int)
	}{
		{"tokens that nobody knows", false, func(r *http.Request, i int) {
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", i))
		}},
		{"tokens that nobody knows, from everywhere", false, func(r *http.Request, i int) {
			r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", i/250, i%250)
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", i))
		}},
		{"one token", false, func(r *http.Request, _ int) { r.Header.Set("Authorization", "Bearer x") }},
		{"no token", true, func(*http.Request, int) {}},
		{"a user who may not be known to", false, func(r *http.Request, _ int) {
			r.Header.Set("Authorization", "Bearer known")
			r.Method = http.MethodPut
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca, api := newAuthority(t), &hanging{from: time.Now().Add(time.Second)}
				cert, err := x509.ParseCertificate(ca.client(&x509.Certificate{}, "admin").Certificate[0])
				if err != nil {
					t.Fatal(err)
				}
				roots := x509.NewCertPool()
				roots.AddCert(ca.cert)
				c := whole(t)
				c.Requests = 10
				c.Authenticator = auth.FirstOf(auth.ClientCerts(func() *x509.CertPool { return roots }), auth.Tokens(auth.TokensConfig{Reviewer: api}))
				if tc.anonymous {
					c.Authenticator = auth.Anonymous(c.Authenticator)
				}
				c.Authorizer = auth.Access(auth.AccessConfig{Reviewer: api})
				h := handler(t, c)
				ask := func(change func(*http.Request)) int {
					r, w := httptest.NewRequest(http.MethodGet, "https://node/pods", nil), httptest.NewRecorder()
					change(r)
					h.ServeHTTP(w, r)
					return w.Code
				}
				withCert := func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}} }
				withToken := func(r *http.Request) { r.Header.Set("Authorization", "Bearer known") }
				want := func(when string) {
					t.Helper()
					began := time.Now()
					if a, b := ask(withCert), ask(withToken); a != 200 || b != 200 || time.Since(began) > 0 {
						t.Errorf("%s: %d with a certificate and %d with a token after %v, want 200 at once", when, a, b, time.Since(began))
					}
				}
				want("before")
				time.Sleep(2 * time.Second)
				codes, mu := map[int]int{}, sync.Mutex{}
				var wg sync.WaitGroup
				for i := range 3000 {
					wg.Go(func() {
						code := ask(func(r *http.Request) { tc.stranger(r, i) })
						mu.Lock()
						defer mu.Unlock()
						codes[code]++
					})
				}
				synctest.Wait()
				mu.Lock()
				if codes[http.StatusTooManyRequests] < 2000 {
					t.Errorf("%v so far of 3000; want most to be refused at once", codes)
				}
				mu.Unlock()
				want("beside them")
				wg.Wait()
				want("after them")
			})
		})
	}
}

// What is asked on a port without credentials takes no place on the main one.
func TestPortsHavePlacesOfTheirOwn(t *testing.T) {
	c := whole(t)
	b := &blocking{begun: make(chan struct{}), release: make(chan struct{})}
	c.Stats, c.Requests = b, 1
	n := run(t, c)
	var wg sync.WaitGroup
	wg.Go(func() { n.get(t, "http://"+n.readOnly+"/stats/summary") })
	<-b.begun
	if code, _ := n.get(t, "https://"+n.main+"/pods"); code != 200 {
		t.Errorf("the main port = %d while the read-only one is busy, want 200", code)
	}
	close(b.release)
	wg.Wait()
}
