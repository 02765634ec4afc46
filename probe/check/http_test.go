package check_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/probe/check"
)

// testTimeout is for a check that ends by itself, on a machine however busy.
const testTimeout = 2 * time.Minute

// deadline is a context whose deadline is over when a test says so.
type deadline struct {
	context.Context
	over chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func serve(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestHTTPStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		want   check.Outcome
		output string
	}{
		{200, check.Success, "body"},
		{204, check.Success, ""},
		{299, check.Success, "body"},
		{300, check.Warning, "Probe terminated redirects, Response body: body"},
		{308, check.Warning, "Probe terminated redirects, Response body: body"}, // without a Location
		{301, check.Warning, "Probe terminated redirects, Response body: body"},
		{304, check.Warning, "Probe terminated redirects, Response body: "},
		{400, check.Failure, "HTTP probe failed with statuscode: 400"},
		{404, check.Failure, "HTTP probe failed with statuscode: 404"},
		{500, check.Failure, "HTTP probe failed with statuscode: 500"},
		{599, check.Failure, "HTTP probe failed with statuscode: 599"},
	} {
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			io.WriteString(w, "body")
		})
		o, out, err := check.HTTP{URL: u}.Check(within(t, testTimeout))
		if o != c.want || out != c.output || err != nil {
			t.Errorf("status %d: %v, %q, %v; want %v, %q", c.status, o, out, err, c.want, c.output)
		}
	}
}

func TestHTTPHeaders(t *testing.T) {
	for _, c := range []struct {
		name string
		give http.Header
		want string // of what the server sees, sorted
		host string
	}{
		{name: "defaults", want: "Accept=*/* Connection=close User-Agent=agent/1"},
		{name: "other Accept", give: http.Header{"Accept": {"text/html"}}, want: "Accept=text/html Connection=close User-Agent=agent/1"},
		{name: "empty Accept", give: http.Header{"Accept": {""}}, want: "Connection=close User-Agent=agent/1"},
		{name: "other User-Agent", give: http.Header{"User-Agent": {"me"}}, want: "Accept=*/* Connection=close User-Agent=me"},
		{name: "empty User-Agent", give: http.Header{"User-Agent": {""}}, want: "Accept=*/* Connection=close"},
		{name: "Accept-Encoding", give: http.Header{"Accept-Encoding": {"gzip"}}, want: "Accept-Encoding=gzip Accept=*/* Connection=close User-Agent=agent/1"},
		{name: "empty Accept-Encoding", give: http.Header{"Accept-Encoding": {""}}, want: "Accept-Encoding= Accept=*/* Connection=close User-Agent=agent/1"},
		{name: "repeated", give: http.Header{"X-A": {"1", "2"}}, want: "Accept=*/* Connection=close User-Agent=agent/1 X-A=1,2"},
		{name: "Host", give: http.Header{"Host": {"example.com"}}, want: "Accept=*/* Connection=close User-Agent=agent/1", host: "example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			var host string
			u := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				host = r.Host
				for k, v := range r.Header {
					got = append(got, k+"="+strings.Join(v, ","))
				}
			})
			if o, out, err := (check.HTTP{URL: u, Header: check.Header(c.give, "agent/1")}).Check(within(t, testTimeout)); o != check.Success {
				t.Fatalf("%v, %q, %v", o, out, err)
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("headers: %s, want %s", s, c.want)
			}
			if c.host == "" {
				c.host = u.Host
			}
			if host != c.host {
				t.Errorf("host: %s, want %s", host, c.host)
			}
		})
	}
}

func TestHTTPRedirects(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "other port") })
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		if n, _ := fmt.Sscanf(r.URL.Path, "/%d/ok", &code); n == 1 && strings.HasSuffix(r.URL.Path, "/ok") {
			http.Redirect(w, r, "/end", code)
			return
		}
		if n, _ := fmt.Sscanf(r.URL.Path, "/%d/bad", &code); n == 1 {
			http.Redirect(w, r, "/nowhere", code)
			return
		}
		switch r.URL.Path {
		case "/end":
			fmt.Fprintf(w, "host %s", r.Host)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		case "/port":
			http.Redirect(w, r, other.String(), http.StatusFound)
		case "/absolute":
			http.Redirect(w, r, "http://"+r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()+"/end", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	type test struct {
		path   string
		host   string
		want   check.Outcome
		output string // a part of it
	}
	tests := []test{
		{path: "/loop", want: check.Failure, output: "stopped after 10 redirects"},
		{path: "/away", want: check.Warning, output: "Probe terminated redirects, Response body: <a href"},
		{path: "/port", want: check.Success, output: "other port"},
		{path: "/302/ok", host: "example.com", want: check.Success, output: "host example.com"},
		{path: "/absolute", host: "example.com", want: check.Success, output: "host example.com"},
	}
	for _, code := range []int{301, 302, 307, 308} {
		tests = append(tests,
			test{path: fmt.Sprintf("/%d/ok", code), want: check.Success, output: "host 127.0.0.1"},
			test{path: fmt.Sprintf("/%d/bad", code), want: check.Failure, output: "statuscode: 404"})
	}
	for _, c := range tests {
		h := check.HTTP{URL: u.JoinPath(c.path)}
		if c.host != "" {
			h.Header = http.Header{"Host": {c.host}}
		}
		o, out, err := h.Check(within(t, testTimeout))
		if o != c.want || !strings.Contains(out, c.output) || err != nil {
			t.Errorf("%s: %v, %q, %v; want %v, %q", c.path, o, out, err, c.want, c.output)
		}
	}
}

func TestHTTPBody(t *testing.T) {
	long := strings.Repeat("x", 3*check.MaxOutput)
	asked := make(chan struct{}, 1)
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			io.WriteString(w, long)
		case "/broken":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/stalled":
			w.Header().Set("Content-Length", "100")
			w.(http.Flusher).Flush()
			asked <- struct{}{}
			<-r.Context().Done()
		case "/slow":
			asked <- struct{}{}
			<-r.Context().Done()
		}
	})
	o, out, err := check.HTTP{URL: u.JoinPath("/long")}.Check(within(t, testTimeout))
	if o != check.Success || out != long[:check.MaxOutput] || err != nil {
		t.Errorf("a long body: %v, %d bytes, %v", o, len(out), err)
	}
	if o, _, err := (check.HTTP{URL: u.JoinPath("/broken")}).Check(within(t, testTimeout)); o != check.Failure || err == nil {
		t.Errorf("a body that breaks off: %v, %v; want a failure and an error", o, err)
	}
	for _, path := range []string{"/slow", "/stalled"} {
		ctx := deadline{t.Context(), make(chan struct{})}
		go func() {
			<-asked
			time.AfterFunc(50*time.Millisecond, func() { close(ctx.over) }) // in which the head of an answer comes
		}()
		if o, out, err := (check.HTTP{URL: u.JoinPath(path)}).Check(ctx); o != check.Failure || err != nil || !strings.Contains(out, "deadline exceeded") {
			t.Errorf("%s: %v, %q, %v; want a failure", path, o, out, err)
		}
	}
}

func TestHTTPTransport(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }
	proxy := serve(t, ok).String() // would answer for anybody
	t.Setenv("HTTP_PROXY", proxy)
	t.Setenv("http_proxy", proxy)
	closed := httptest.NewServer(http.HandlerFunc(ok))
	closed.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(ok))
	defer secure.Close()
	for _, c := range []struct {
		url  string
		want check.Outcome
	}{
		{closed.URL, check.Failure},
		{secure.URL, check.Success}, // by a certificate that nobody signed
		{"ftp://127.0.0.1/", check.Failure},
		{"http://name.invalid/", check.Failure},
	} {
		to, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if o, out, err := (check.HTTP{URL: to}).Check(within(t, testTimeout)); o != c.want || err != nil || out == "" {
			t.Errorf("%s: %v, %q, %v; want %v", c.url, o, out, err, c.want)
		}
	}
}

func TestHTTPKeepAlive(t *testing.T) {
	for _, keep := range []bool{false, true} {
		opened := 0
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
			if st == http.StateNew {
				opened++
			}
		}
		s.Start()
		u, _ := url.Parse(s.URL)
		client := check.NewClient(check.ClientConfig{KeepAlive: keep})
		for range 5 {
			if o, out, _ := (check.HTTP{URL: u, Client: client}).Check(within(t, testTimeout)); o != check.Success {
				t.Fatalf("%v %s", o, out)
			}
		}
		client.Close()
		s.Close()
		if want := map[bool]int{false: 5, true: 1}[keep]; opened != want {
			t.Errorf("keep-alive %v: %d connections for 5 checks, want %d", keep, opened, want)
		}
	}
}

func TestURL(t *testing.T) {
	for _, c := range []struct{ host, path, want string }{
		{"h", "", "http://h:80"},
		{"h", "/", "http://h:80/"},
		{"h", "path", "http://h:80/path"},
		{"h", "?foo", "http://h:80?foo"},
		{"h", "/path?bar", "http://h:80/path?bar"},
		{"h", "/a b", "http://h:80/a%20b"},
		{"h", "/%zz", "http://h:80/%25zz"},
		{"h", "//other/x", "http://h:80/x"},
		{"::1", "/x", "http://[::1]:80/x"},
	} {
		if got := check.URL("http", c.host, 80, c.path).String(); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.host, c.path, got, c.want)
		}
	}
}

// Whatever the path, the request goes to the given host and port.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"", "/", "?a=b", "//evil.example/x", "http://evil.example/", "mailto:x", "/%zz", "\x00", "@evil/", ":80/x"} {
		f.Add("10.0.0.1", s)
		f.Add("fd00::1", s)
	}
	f.Fuzz(func(t *testing.T, host, path string) {
		if net.ParseIP(host) == nil {
			host = "10.0.0.1"
		}
		u := check.URL("http", host, 8080, path)
		if u.Hostname() != host || u.Port() != "8080" || u.Scheme != "http" || u.User != nil {
			t.Fatalf("%q leads to %v", path, u)
		}
		req, err := http.NewRequest(http.MethodGet, u.String(), nil)
		if err == nil && req.URL.Host != u.Host {
			t.Fatalf("%q leads to %q once it is written", path, req.URL.Host)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("Accept", "")
	f.Add("User-Agent", "x")
	f.Add("\r\n", "\r\n")
	f.Fuzz(func(t *testing.T, name, value string) {
		h := http.Header{}
		h.Add(name, value)
		h = check.Header(h, "agent/1")
		if http.CanonicalHeaderKey(name) == "User-Agent" != (h.Get("User-Agent") != "agent/1") && value != "agent/1" {
			t.Fatalf("%q: User-Agent is %q", name, h.Get("User-Agent"))
		}
		if a, ok := h["Accept"]; ok && a[0] == "" {
			t.Fatal("an empty Accept is sent")
		}
	})
}
