package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

// endpoint is one request, the subresources of which one allows it, and what it
// is answered with on each port.
type endpoint struct {
	request, subresources  string
	main, readOnly, health int
}

// endpoints has at least one request for every pattern of a Server with all
// endpoints, and some for none.
var endpoints = []endpoint{
	{"GET /healthz", "healthz proxy", 200, 200, 200},
	{"GET /healthz/ping", "healthz proxy", 200, 200, 404},
	{"GET /healthz/log", "healthz proxy", 200, 200, 404},
	{"GET /healthz/syncloop", "healthz proxy", 200, 200, 404},
	{"GET /healthz/none", "healthz proxy", 404, 404, 404},
	{"HEAD /healthz", "healthz proxy", 200, 200, 200},
	{"HEAD /pods", "pods proxy", 200, 200, 404},
	{"DELETE /healthz", "healthz proxy", 405, 405, 405},
	{"GET /livez", "proxy", 200, 404, 404},
	{"GET /readyz", "proxy", 200, 404, 404},
	{"GET /pods", "pods proxy", 200, 200, 404},
	{"GET /pods/", "pods proxy", 200, 200, 404},
	{"POST /pods", "pods proxy", 405, 405, 404},
	{"OPTIONS /pods", "pods proxy", 405, 405, 404},
	{"GET /podsx", "proxy", 404, 404, 404},
	{"GET /runningpods", "pods proxy", 200, 404, 404},
	{"GET /runningpods/", "pods proxy", 200, 404, 404},
	{"GET /stats/summary", "stats", 200, 200, 404},
	{"POST /stats/summary", "stats", 200, 200, 404},
	{"GET /stats", "stats", 404, 404, 404},
	{"GET /metrics", "metrics", 200, 200, 404},
	{"GET /metrics/cadvisor", "metrics", 200, 200, 404},
	{"GET /metrics/probes", "metrics", 200, 200, 404},
	{"GET /metrics/resource", "metrics", 200, 200, 404},
	{"GET /metrics/slis", "metrics", 200, 200, 404},
	{"GET /metrics/none", "metrics", 404, 404, 404},
	{"GET /configz", "configz proxy", 200, 404, 404},
	{"GET /statusz", "statusz", 200, 404, 404},
	{"GET /flagz", "configz", 200, 404, 404},
	{"GET /logs", "log", 200, 404, 404},
	{"GET /logs/", "log", 200, 404, 404},
	{"GET /logs/none", "log", 404, 404, 404},
	{"GET /containerLogs/default/web/c", "proxy", 200, 404, 404},
	{"GET /containerLogs/default/web", "proxy", 400, 404, 404},
	{"GET /exec/default/web/c?output=1", "proxy", 400, 404, 404}, // no upgrade
	{"POST /exec/default/web/c?output=1", "proxy", 400, 404, 404},
	{"POST /exec/default/web/uid-1/c?output=1", "proxy", 400, 404, 404},
	{"PUT /exec/default/web/c", "proxy", 405, 404, 404},
	{"GET /attach/default/web/c?output=1", "proxy", 400, 404, 404},
	{"POST /attach/default/web/uid-1/c?output=1", "proxy", 400, 404, 404},
	{"GET /portForward/default/web", "proxy", 400, 404, 404},
	{"POST /portForward/default/web/uid-1", "proxy", 400, 404, 404},
	{"POST /run/default/web/c?cmd=ls", "proxy", 200, 404, 404},
	{"POST /run/default/web/uid-1/c?cmd=ls", "proxy", 200, 404, 404},
	{"GET /run/default/web/c?cmd=ls", "proxy", 405, 404, 404},
	{"POST /checkpoint/default/web/c", "checkpoint", 200, 404, 404},
	{"GET /debug/pprof", "proxy", 200, 404, 404},
	{"GET /debug/pprof/", "proxy", 200, 404, 404},
	{"GET /debug/pprof/heap", "proxy", 200, 404, 404},
	{"GET /debug/flags/v", "proxy", 200, 404, 404},
	{"PUT /debug/flags/v", "proxy", 400, 404, 404}, // no number
	{"GET /", "proxy", 404, 404, 404},
	{"GET /no/such", "proxy", 404, 404, 404},
	{"BREW /coffee", "proxy", 404, 404, 404},
}

// guarded is a Config with all endpoints, and a log.
func guarded(t *testing.T) server.Config {
	c := withLog(t)
	c.Health = []server.Check{{Name: "syncloop", Check: func(*http.Request) error { return nil }}}
	c.Gatherers = map[string]prometheus.Gatherer{}
	for _, p := range []string{"/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource"} {
		c.Gatherers[p] = prometheus.NewRegistry()
	}
	return c
}

// Every endpoint has a request in the table, and the rights that it takes: a new
// one has to be thought about.
func TestEveryEndpointIsInTheTable(t *testing.T) {
	for _, debugging := range []bool{true, false} {
		c := guarded(t)
		c.EnableDebuggingHandlers = debugging
		s, err := server.New(c)
		if err != nil {
			t.Fatal(err)
		}
		mux, served := http.NewServeMux(), map[string]bool{}
		for _, p := range s.Patterns() {
			mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) {})
		}
		for _, e := range endpoints {
			method, path, _ := strings.Cut(e.request, " ")
			u, err := url.Parse("https://node" + path)
			if err != nil {
				t.Fatal(err)
			}
			_, pattern := mux.Handler(&http.Request{Method: method, URL: u, Host: "node"})
			served[pattern] = true
			if got := strings.Join(auth.Subresources(u.Path), " "); got != e.subresources {
				t.Errorf("%s is allowed by %q, want %q", path, got, e.subresources)
			}
		}
		for _, p := range s.Patterns() {
			if !served[p] {
				t.Errorf("no request for %s", p)
			}
		}
	}
}

// rights are those of users by name: subresources, with any verb.
var rights = map[string]string{
	"admin": "pods proxy stats metrics log checkpoint statusz configz healthz",
	"fine":  "pods stats metrics log checkpoint statusz configz healthz", // all but proxy
	"proxy": "proxy", "metrics": "metrics", "weak": "",
	auth.AnonymousUser: "healthz",
}

func mayDo(user, subresources string) bool {
	return slices.ContainsFunc(strings.Fields(subresources), func(s string) bool {
		return slices.Contains(strings.Fields(rights[user]), s)
	})
}

// cluster is an API server that knows the rights; a token is its user's name.
type cluster struct{}

func (cluster) ReviewToken(_ context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	_, known := rights[r.Spec.Token]
	return &authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
		Authenticated: known, User: authenticationv1.UserInfo{Username: r.Spec.Token},
	}}, nil
}

func (cluster) ReviewAccess(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	a := r.Spec.ResourceAttributes
	ok := mayDo(r.Spec.User, a.Subresource) && a.Resource == "nodes" && a.Name == "node-1" && a.Namespace == "" && a.Group == "" && a.Version == "v1"
	return &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: ok}}, nil
}

// credential is what a client shows; user is whom the node is to take it for,
// "" for nobody, which anonymous users may be.
type credential struct {
	name, token, user string
	cert              *tls.Certificate
	wrong             bool // what is shown is no good: not even anonymous
}

// All endpoints, with all that a client may or may not show, on connections as
// the node takes them.
func TestWhoMayWhat(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	past := x509.Certificate{NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0)}
	servers := x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	creds := []credential{
		{name: "nothing"},
		{name: "wrong token", token: "guess", wrong: true},
		{name: "certificate of another authority", cert: foreign.client(&x509.Certificate{}, "admin"), wrong: true},
		{name: "certificate that has expired", cert: ours.client(&past, "admin"), wrong: true},
		{name: "certificate for servers", cert: ours.client(&servers, "admin"), wrong: true},
		{name: "certificate of nobody", cert: ours.client(&x509.Certificate{}, "")},
		{name: "right certificate", cert: ours.client(&x509.Certificate{}, "admin"), user: "admin"},
		{name: "certificate without rights", cert: ours.client(&x509.Certificate{}, "weak"), user: "weak"},
		{name: "certificate before token", cert: ours.client(&x509.Certificate{}, "weak"), token: "admin", user: "weak"},
		{name: "right token, foreign certificate", cert: foreign.client(&x509.Certificate{}, "weak"), token: "admin", user: "admin"},
	}
	for name := range rights {
		if name != auth.AnonymousUser {
			creds = append(creds, credential{name: "token of " + name, token: name, user: name})
		}
	}
	for _, anonymous := range []bool{false, true} {
		c := guarded(t)
		certs, err := server.NewCerts(server.CertsConfig{CertDir: t.TempDir(), Host: "node-1", ClientCAFile: ours.file})
		if err != nil {
			t.Fatal(err)
		}
		c.Authenticator = auth.FirstOf(auth.ClientCerts(certs.ClientCAs), auth.Tokens(auth.TokensConfig{Reviewer: cluster{}}))
		if anonymous {
			c.Authenticator = auth.Anonymous(c.Authenticator)
		}
		c.Authorizer = auth.Access(auth.AccessConfig{Reviewer: cluster{}})
		n := runWith(t, c, certs)
		for _, cred := range creds {
			client := n.as(cred.cert, cred.token)
			for _, e := range endpoints {
				user, want := cred.user, e.main
				if user == "" && anonymous {
					user = auth.AnonymousUser
				}
				switch {
				case cred.wrong || user == "":
					want = http.StatusUnauthorized
				case !mayDo(user, e.subresources):
					want = http.StatusForbidden
				}
				if code, body := client(t, "https://"+n.main, e.request); code != want {
					t.Errorf("anonymous %t, %s: %s = %d %.200q, want %d", anonymous, cred.name, e.request, code, body, want)
				}
			}
		}
		if calls := c.Runtime.(*runtime).calls; slices.ContainsFunc(calls, func(c any) bool { _, ok := c.(interface{ GetLocation() string }); return !ok }) {
			t.Errorf("the runtime was asked for streams: %v", calls)
		}
	}
}

// The ports without credentials have what the kubelet's have, and nothing else.
func TestWhatThePortsWithoutCredentialsHave(t *testing.T) {
	n := run(t, guarded(t))
	ask := n.as(nil, "")
	for _, e := range endpoints {
		for port, want := range map[string]int{n.readOnly: e.readOnly, n.healthz: e.health} {
			if code, body := ask(t, "http://"+port, e.request); code != want {
				t.Errorf("%s: %s = %d %.200q, want %d", port, e.request, code, body, want)
			}
		}
	}
}

// as makes requests with these credentials, "METHOD /path", and follows no
// redirect.
func (n *node) as(cert *tls.Certificate, token string) func(t *testing.T, base, request string) (int, string) {
	conf := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		// Whatever authorities the node names, this is what is shown.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}, CheckRedirect: n.client.CheckRedirect}
	return func(t *testing.T, base, request string) (int, string) {
		t.Helper()
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequest(method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
}
