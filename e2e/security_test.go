package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Who may ask a node's port for what is for the API server to say.
func TestWhoMayAskTheNode(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	l.config = "authorization: {mode: Webhook}\n"
	l.start()
	l.apply(pod("box", forever))
	l.ready(1, "")
	for name, rule := range map[string]string{
		"nobody": "", "scraper": "nodes/metrics", "reader": "nodes/pods", "checker": "nodes/healthz", "statistician": "nodes/stats", "proxy": "nodes/proxy",
	} {
		l.kubectl("create", "serviceaccount", name)
		if rule != "" {
			l.kubectl("create", "clusterrole", name, "--verb=get,create", "--resource="+rule)
			l.kubectl("create", "clusterrolebinding", name, "--clusterrole="+name, "--serviceaccount=default:"+name)
		}
	}
	token := func(account string) string { return strings.TrimSpace(l.kubectl("create", "token", account)) }
	const exec = "/exec/default/box/main?command=id&output=1"
	for _, who := range []struct {
		name, token string
		may         []string
	}{
		{name: "no credentials"},
		{name: "a wrong token", token: "wrong"},
		{name: "a token of nobody in particular", token: token("nobody")},
		{name: "nodes/metrics", token: token("scraper"), may: []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"}},
		{name: "nodes/pods", token: token("reader"), may: []string{"/pods", "/runningpods/"}},
		{name: "nodes/healthz", token: token("checker"), may: []string{"/healthz", "/healthz/ping"}},
		{name: "nodes/stats", token: token("statistician"), may: []string{"/stats/summary"}},
		{name: "nodes/proxy", token: token("proxy"), may: []string{
			"/containerLogs/default/box/main", "/configz", "/pods", "/runningpods/", "/healthz", "/healthz/ping", exec,
		}},
	} {
		t.Run(who.name, func(t *testing.T) {
			may := map[string]bool{}
			for _, path := range who.may {
				may[path] = true
			}
			for _, path := range []string{
				"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/stats/summary", "/pods", "/runningpods/", "/healthz", "/healthz/ping",
				"/configz", "/containerLogs/default/box/main", "/logs/", "/debug/pprof/", exec,
			} {
				code := l.askNode(path, who.token)
				switch {
				case who.token == "" || who.token == "wrong":
					if code != http.StatusUnauthorized {
						t.Errorf("%s: %d, want 401", path, code)
					}
				case may[path]:
					if code == http.StatusUnauthorized || code == http.StatusForbidden {
						t.Errorf("%s: %d, want that it is served", path, code)
					}
				case who.name == "nodes/proxy" && !strings.HasPrefix(path, "/metrics") && !strings.HasPrefix(path, "/stats"): // whatever has no name of its own
				case code != http.StatusForbidden:
					t.Errorf("%s: %d, want 403", path, code)
				}
			}
		})
	}
}

// askNode asks the node's port itself, and returns the code of the answer.
func (l *cluster) askNode(path, token string) int {
	l.t.Helper()
	ca, err := os.ReadFile(l.cp.CAFile())
	l.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, InsecureSkipVerify: true}, //nolint:gosec // the certificate is the node's own
	}}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s:%d%s", l.address, l.port, path), nil)
	l.must(err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}
