package localapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// client is an HTTP client of a kubeconfig.
func client(t *testing.T, kubeconfig []byte) *http.Client {
	t.Helper()
	var c struct {
		Clusters []struct {
			Cluster struct {
				CA string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert string `json:"client-certificate-data"`
				Key  string `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(kubeconfig, &c); err != nil {
		t.Fatal(err)
	}
	data := func(s string) []byte { b, _ := base64.StdEncoding.DecodeString(s); return b }
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data(c.Clusters[0].Cluster.CA))
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if c.Users[0].User.Cert != "" {
		pair, err := tls.X509KeyPair(data(c.Users[0].User.Cert), data(c.Users[0].User.Key))
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}}
}

// Certificates say who somebody is, and their organizations what they may do. Nobody
// gets in without one.
func TestAccess(t *testing.T) {
	a := start(t, &store.Memory{})
	dir := t.TempDir()
	authority, err := localapi.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		Handler: a.Handler(localapi.Certificates), TLSConfig: authority.TLS([]string{"127.0.0.1"}), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() { _ = srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = srv.Close() })
	url := "https://" + l.Addr().String()
	same, err := localapi.OpenAuthority(dir) // as the command does, while the agent runs
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		group string
		want  map[string]int
	}{
		{localapi.GroupView, map[string]int{
			"GET /api": 200, "GET /api/v1/pods": 200, "GET " + pods + "?watch=1&timeoutSeconds=1": 200, "GET /api/v1/secrets": 403, "POST " + configMaps: 403, "DELETE " + pods + "/x": 403,
			"POST " + pods + "/x/exec": 403, "GET " + pods + "/x/exec": 403, "GET " + pods + "/x/log": 405, "GET /api/v1/nodes/node-1/proxy/stats": 403, "GET /api/v1/nodes": 200,
		}},
		{localapi.GroupEdit, map[string]int{
			"GET /api/v1/secrets": 200, "POST " + configMaps: 422, "PATCH /api/v1/nodes/node-1": 403, "DELETE /api/v1/namespaces/x": 403, "POST " + pods + "/x/exec": 405,
			"GET /api/v1/nodes/node-1/proxy/stats": 403, "DELETE /api/v1/persistentvolumes/x": 403,
		}},
		{localapi.GroupAdmin, map[string]int{"DELETE /api/v1/namespaces/x": 404, "DELETE /api/v1/persistentvolumes/x": 404, "GET /api/v1/nodes/node-1/proxy/stats": 405}},
		{"system:masters", map[string]int{"GET /api": 403, "GET /api/v1/pods": 403}},
		{"", map[string]int{"GET /api/v1/pods": 403}},
	} {
		cert, key, err := same.Client("somebody", []string{c.group}, 0)
		if err != nil {
			t.Fatal(err)
		}
		hc := client(t, same.Kubeconfig(url, "somebody", cert, key))
		for what, want := range c.want {
			method, path, _ := strings.Cut(what, " ")
			req, _ := http.NewRequestWithContext(context.Background(), method, url+path, strings.NewReader("{}"))
			req.Header.Set("Content-Type", asJSON)
			resp, err := hc.Do(req)
			if err != nil {
				t.Errorf("%s: %s: %v", c.group, what, err)
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: %s: %d, want %d: %.200s", c.group, what, resp.StatusCode, want, text)
			}
		}
	}
	if _, err := client(t, same.Kubeconfig(url, "", nil, nil)).Get(url + "/api"); err == nil {
		t.Error("somebody without a certificate got in")
	}
	other, err := localapi.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cert, key, _ := other.Client("somebody", []string{localapi.GroupAdmin}, 0)
	if _, err := client(t, same.Kubeconfig(url, "somebody", cert, key)).Get(url + "/api"); err == nil {
		t.Error("somebody with a certificate of another authority got in")
	}
}

// An admin may take somebody else's rights, and nobody else may; the headers are never
// ignored.
func TestImpersonation(t *testing.T) {
	a := start(t, &store.Memory{})
	const whoami, review = "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	for _, c := range []struct {
		name, group, headers string
		method, path         string
		code                 int
		want                 string
	}{
		{"nobody", localapi.GroupAdmin, "Impersonate-User: ann", "GET", "/api/v1/pods", 403, `User \"ann\" cannot list resource \"pods\"`},
		{"nobody, discovery", localapi.GroupAdmin, "Impersonate-User: ann", "GET", "/api", 403, "is in none of the groups"},
		{"a viewer", localapi.GroupAdmin, "Impersonate-User: ann\nImpersonate-Group: nodewright:view", "GET", "/api/v1/pods", 200, ""},
		{"a viewer, Secrets", localapi.GroupAdmin, "Impersonate-User: ann\nImpersonate-Group: nodewright:view", "GET", "/api/v1/secrets", 403, "ann"},
		{"two groups", localapi.GroupAdmin, "Impersonate-User: ann\nImpersonate-Group: else\nImpersonate-Group: nodewright:edit", "GET", "/api/v1/secrets", 200, ""},
		{"all of one", localapi.GroupAdmin, "Impersonate-User: ann\nImpersonate-Group: nodewright:view\nImpersonate-Uid: u-1\nImpersonate-Extra-Example.com%2fScopes: a\nImpersonate-Extra-Example.com%2fScopes: b", "POST", whoami, 201,
			`"username":"ann","uid":"u-1","groups":["nodewright:view","system:authenticated"],"extra":{"example.com/scopes":["a","b"]}`},
		{"a service account", localapi.GroupAdmin, "Impersonate-User: system:serviceaccount:ns:sa", "GET", "/api/v1/pods", 403, "system:serviceaccount:ns:sa"},
		{"groups alone", localapi.GroupAdmin, "Impersonate-Group: nodewright:view", "GET", "/api/v1/pods", 400, "want the header Impersonate-User"},
		{"an extra alone", localapi.GroupAdmin, "Impersonate-Extra-A: b", "GET", "/api/v1/pods", 400, "want the header Impersonate-User"},
		{"a UID alone", localapi.GroupEdit, "Impersonate-Uid: b", "GET", "/api/v1/pods", 400, "want the header Impersonate-User"},
		{"by an editor", localapi.GroupEdit, "Impersonate-User: ann\nImpersonate-Group: nodewright:admin", "GET", "/api/v1/pods", 403, `User \"root\" cannot impersonate resource \"users\"`},
		{"by a viewer, itself", localapi.GroupView, "Impersonate-User: root", "GET", "/api/v1/pods", 403, "cannot impersonate"},
	} {
		who := func(*http.Request) (*localapi.User, error) {
			return &localapi.User{Name: "root", Groups: []string{c.group}}, nil
		}
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(review))
		r.Header.Set("Content-Type", asJSON)
		for line := range strings.Lines(c.headers) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		a.Handler(who).ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d, want %d with %q: %s", c.name, w.Code, c.code, c.want, w.Body)
		}
	}
}
