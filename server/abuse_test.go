package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nodewright/nodewright/server/auth"
)

// A runtime that answers a stream with a redirect leads nobody away: neither
// the node nor its client goes there.
func TestRedirectsOfTheRuntime(t *testing.T) {
	var reached atomic.Int32
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(trap.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		rt := httptest.NewServer(http.RedirectHandler(trap.URL+"/exec/x", code))
		t.Cleanup(rt.Close)
		c := whole(t)
		c.Runtime.(*runtime).leadTo(rt.URL + "/exec/x")
		h := handler(t, c)
		for path, protocols := range map[string][]string{
			"/exec/default/web/c?output=1":     {"SPDY/3.1", "v4.channel.k8s.io", "v5.channel.k8s.io"},
			"/attach/default/web/c?output=1":   {"SPDY/3.1", "v4.channel.k8s.io", "v5.channel.k8s.io"},
			"/portForward/default/web?port=80": {"SPDY/3.1", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"},
		} {
			for _, p := range protocols {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", p)
				if p != "SPDY/3.1" {
					r.Header.Set("Upgrade", "websocket")
					r.Header.Set("Sec-WebSocket-Protocol", p)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusBadGateway || w.Header().Get("Location") != "" {
					t.Errorf("%s with %s to a %d = %d, Location %q; want 502 and none", path, p, code, w.Code, w.Header().Get("Location"))
				}
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("the redirect was followed %d times", n)
	}
}

// What decides about a path and what serves it mean the same one, however it
// is written, and no log is outside of its directory.
func TestPathsThatLeadAstray(t *testing.T) {
	c := guarded(t)
	out := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(out, "secret"), []byte("hidden"), 0o600),
		os.WriteFile(filepath.Join(c.SystemLogDir, "a.log"), []byte("shown"), 0o600),
		os.Symlink("a.log", filepath.Join(c.SystemLogDir, "within")),
		os.Symlink(filepath.Join(out, "secret"), filepath.Join(c.SystemLogDir, "link")),
		os.Symlink("../"+filepath.Base(out)+"/secret", filepath.Join(c.SystemLogDir, "relative")),
		os.Symlink(out, filepath.Join(c.SystemLogDir, "dir")),
		os.Symlink("/", filepath.Join(c.SystemLogDir, "root")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.EnableSystemLogQuery = true
	c.Authenticator = auth.FirstOf(auth.Tokens(auth.TokensConfig{Reviewer: cluster{}}))
	c.Authorizer = auth.Access(auth.AccessConfig{Reviewer: cluster{}})
	n := run(t, c)
	fine := n.as(nil, "fine") // may do all that "proxy" is not needed for
	admin := n.as(nil, "admin")
	for _, tc := range []struct {
		path        string
		fine, admin int
	}{
		{"/logs/a.log", 200, 200}, {"/logs/within", 200, 200}, {"/logs/%61.log", 200, 200},
		{"/logs/link", 404, 404}, {"/logs/relative", 404, 404}, {"/logs/dir/secret", 404, 404}, {"/logs/dir/", 404, 404},
		{"/logs/root" + url.PathEscape(out) + "/secret", 404, 404}, {"/logs/root" + out + "/secret", 404, 404},
		{"/logs/../secret", 400, 400}, {"/logs/%2e%2e/secret", 400, 400}, {"/logs/.%2e/secret", 400, 400},
		{"/logs/..%2fsecret", 400, 400}, {"/logs/..%2F..%2Fetc%2Fpasswd", 400, 400}, {"/logs%2f..%2f..%2fetc%2fpasswd", 400, 400},
		{"/logs/%2fetc%2fpasswd", 400, 400}, {"/logs//etc/passwd", 400, 400}, {"/logs/./a.log", 400, 400},
		{"/logs/..%5c..%5cetc%5cpasswd", 404, 404}, {"/logs/%252e%252e/secret", 404, 404}, {"/logs/a.log%00", 404, 404},
		{"/logs/?query=../../etc/passwd", 406, 406}, {"/logs/?query=/etc/passwd", 406, 406}, {"/logs/?query=./link", 406, 406},
		{"/logs/?query=dir/secret", 406, 406}, {"/logs/?query=%2e%2e%2f%2e%2e%2fetc%2fpasswd", 406, 406}, {"/logs/?query=..%5c..%5cetc%5cpasswd", 406, 406},
		{"/containerLogs/default/web/..%2fc", 400, 400}, {"/containerLogs/default/%2e%2e/c", 400, 400}, {"/containerLogs/default/web%2f..%2fweb/c", 400, 400},
		{"/containerLogs/default%2fweb/c", 403, 400}, {"/containerLogs/default/web%2fc/c", 403, 404},
		// To be allowed as one path and served as another.
		{"/%65xec/default/web/c", 403, 400}, {"/run%2fdefault%2fweb%2fc", 403, 404}, {"/pods;/exec/default/web/c", 403, 404},
		{"/pods/../exec/default/web/c", 400, 400}, {"/metrics%2f..%2fexec/default/web/c", 400, 400}, {"/metrics/%2e%2e/exec/default/web/c", 400, 400},
		{"//exec/default/web/c", 400, 400}, {"/metrics//../exec/default/web/c", 400, 400}, {"/pods/%2e", 400, 400},
		{"/metrics%2fcadvisor", 404, 404}, {"/pods%2f", 404, 404}, {"/PODS", 403, 404}, {"/Metrics", 403, 404},
	} {
		for who, want := range map[string]int{"fine": tc.fine, "admin": tc.admin} {
			ask := map[string]func(*testing.T, string, string) (int, string){"fine": fine, "admin": admin}[who]
			code, body := ask(t, "https://"+n.main, "GET "+tc.path)
			if code != want || strings.Contains(body, "hidden") || strings.Contains(body, "root:") {
				t.Errorf("%s: %s = %d %.100q, want %d", who, tc.path, code, body, want)
			}
		}
	}
}

// Who a client says that it is counts for nothing: only what it shows does.
func TestClaimsInHeaders(t *testing.T) {
	c := guarded(t)
	var asked atomic.Pointer[auth.User]
	c.Authenticator = auth.Anonymous(auth.FirstOf(auth.Tokens(auth.TokensConfig{Reviewer: cluster{}})))
	c.Authorizer = auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (bool, string, error) {
		asked.Store(a.User)
		return a.User.Name == "admin", "", nil
	})
	h := handler(t, c)
	claims := http.Header{
		"Impersonate-User": {"admin"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Uid": {"1"}, "Impersonate-Extra-K": {"v"},
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Forwarded-User": {"admin"}, "X-Forwarded-For": {"127.0.0.1"},
		"X-Forwarded-Client-Cert": {"Subject=\"CN=admin\""}, "X-Ssl-Client-Cert": {"admin"}, "Cookie": {"token=admin"}, "Forwarded": {"for=127.0.0.1"},
	}
	for _, tc := range []struct {
		tokens []string
		url    string
		code   int
		user   string
	}{
		{nil, "/pods", 403, auth.AnonymousUser},
		{nil, "/pods?access_token=admin&token=admin", 403, auth.AnonymousUser},
		{[]string{"Bearer weak"}, "/pods", 403, "weak"},
		{[]string{"Bearer weak", "Bearer admin"}, "/pods", 403, "weak"}, // the first one counts
		{[]string{"Bearer weak, Bearer admin"}, "/pods", 401, ""},
		{[]string{"Bearer weak\tadmin"}, "/pods", 401, ""},
		{[]string{"Basic YWRtaW46"}, "/pods", 403, auth.AnonymousUser},
		{[]string{"bearer admin"}, "/pods", 200, "admin"},
	} {
		asked.Store(nil)
		r := httptest.NewRequest(http.MethodGet, "https://admin@node"+tc.url, nil)
		r.Header = claims.Clone()
		r.Header["Authorization"] = tc.tokens
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		user := ""
		if u := asked.Load(); u != nil {
			user = u.Name
			if len(u.Groups) != 1 || u.UID != "" || len(u.Extra) > 0 {
				t.Errorf("%q: the user is %+v", tc.tokens, u)
			}
		}
		if w.Code != tc.code || user != tc.user {
			t.Errorf("%q of %s = %d as %q, want %d as %q", tc.tokens, tc.url, w.Code, user, tc.code, tc.user)
		}
	}
}

// Bodies are read as far as they may be needed, and never where they are not.
func TestLargeBodies(t *testing.T) {
	c := guarded(t)
	h := handler(t, c)
	for _, tc := range []struct {
		request string
		prefix  string
		code    int
		most    int64 // bytes that may be read
	}{
		{"POST /run/default/web/c", "cmd=", 400, 2 << 20},
		{"POST /stats/summary", "only_cpu_and_memory=", 400, 2 << 20},
		{"PUT /debug/flags/v", "1", 400, 4 << 10},
		{"POST /checkpoint/default/web/c", "x=", 200, 0},
		{"POST /debug/pprof/heap", "debug=", 200, 2 << 20},
		{"POST /exec/default/web/c?output=1", "command=", 400, 0},
		{"GET /pods", "x=", 200, 0},
		{"POST /none", "x=", 404, 0},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		body := &counting{r: io.MultiReader(strings.NewReader(tc.prefix), io.LimitReader(letters{}, 64<<20))}
		r := httptest.NewRequest(method, path, body)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.code || body.n > tc.most {
			t.Errorf("%s = %d after %d bytes, want %d after at most %d", tc.request, w.Code, body.n, tc.code, tc.most)
		}
	}
	for _, call := range c.Runtime.(*runtime).calls {
		if q, ok := call.(interface{ GetLocation() string }); !ok || q.GetLocation() == "" {
			t.Errorf("the runtime was asked %v", call)
		}
	}
}

// letters are as many as one wants.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// counting counts what is read.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// What net/http would answer by itself passes the same limits.
func TestOptionsOfTheServer(t *testing.T) {
	c := whole(t)
	c.Authenticator = auth.FirstOf()
	n := run(t, c)
	for port, want := range map[string]int{n.main: 401, n.readOnly: 400, n.healthz: 400} {
		conn, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		if port == n.main {
			conn = clientOf(conn)
		}
		fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		conn.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", port, resp.StatusCode, want)
		}
	}
}
