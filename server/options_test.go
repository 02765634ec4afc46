package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/server"
)

func TestStreamsOf(t *testing.T) {
	for _, tc := range []struct{ query, want string }{
		{"input=1&output=1&error=1", "{true true true false}"},
		{"output=1", "{false true false false}"},
		{"input=1&output=1&error=1&tty=1", "{true true false true}"},
		{"error=1&tty=1", "you must specify at least 1 of stdin, stdout, stderr"},
		{"", "you must specify at least 1 of stdin, stdout, stderr"},
		{"input=true&output=0", "you must specify at least 1 of stdin, stdout, stderr"},
	} {
		q, _ := url.ParseQuery(tc.query)
		st, err := server.StreamsOf(q)
		got := fmt.Sprint(st)
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s = %s, want %s", tc.query, got, tc.want)
		}
	}
}

func TestPortsOf(t *testing.T) {
	for _, tc := range []struct{ query, want string }{
		{"port=80&port=443", "[80 443]"},
		{"port=80,443", "[80 443]"},
		{"port=65535", "[65535]"},
		{"", "required"},
		{"port=", `""`}, {"port=0", `"0"`}, {"port=65536", `"65536"`}, {"port=-1", `"-1"`}, {"port=http", `"http"`},
	} {
		q, _ := url.ParseQuery(tc.query)
		ports, err := server.PortsOf(q)
		got := fmt.Sprint(ports)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s = %s, want %s", tc.query, got, tc.want)
		}
	}
}

// Without a port a WebSocket of the older kind is refused; a tunnel names its
// ports later, unless the feature is off.
func TestPortForwardOverWebSockets(t *testing.T) {
	for _, tc := range []struct {
		protocol, query string
		off             bool
		want            string
	}{
		{"v4.channel.k8s.io", "", false, "400"},
		{"v4.channel.k8s.io", "?port=80", false, "500 []int32{80}"},
		{"SPDY/3.1+portforward.k8s.io", "", false, "500 []int32(nil)"},
		{"SPDY/3.1+portforward.k8s.io", "", true, "400"},
	} {
		c := whole(t)
		c.DisableWebSocketTranslation = tc.off
		r := httptest.NewRequest(http.MethodGet, "/portForward/default/web"+tc.query, nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Protocol", tc.protocol)
		w := httptest.NewRecorder()
		handler(t, c).ServeHTTP(w, r)
		got := fmt.Sprint(w.Code)
		for _, call := range c.Runtime.(*runtime).calls {
			got += fmt.Sprintf(" %#v", call.(interface{ GetPort() []int32 }).GetPort())
		}
		if got != tc.want {
			t.Errorf("%s%s off %v: %s, want %s (%s)", tc.protocol, tc.query, tc.off, got, tc.want, w.Body)
		}
	}
}

func FuzzLogOptions(f *testing.F) {
	f.Add("follow=true&tailLines=5&sinceTime=2026-01-02T03:04:05Z&limitBytes=1&stream=All")
	f.Add("tail=all&previous&timestamps=0&sinceSeconds=-9223372036854775808")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		o, err := server.ParseLogOptions(q)
		if err != nil {
			return
		}
		_ = o.Validate()
		again, err := server.ParseLogOptions(q)
		if err != nil || fmt.Sprint(o.Validate()) != fmt.Sprint(again.Validate()) {
			t.Errorf("%q reads as two things", raw)
		}
	})
}

func FuzzExecOptions(f *testing.F) {
	f.Add("input=1&output=1&error=1&tty=1&command=ls&port=80")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		if st, err := server.StreamsOf(q); err == nil && (st.TTY && st.Stderr || !st.Stdin && !st.Stdout && !st.Stderr) {
			t.Errorf("%q = %+v", raw, st)
		}
		if ports, err := server.PortsOf(q); err == nil {
			for _, p := range ports {
				if p < 1 || p > 65535 {
					t.Errorf("%q has port %d", raw, p)
				}
			}
		}
	})
}

// What decides about a path and what serves it see the same one.
func FuzzClean(f *testing.F) {
	for _, p := range []string{"/", "/pods/", "/pods/../exec", "//exec", "/.", "/exec/a/b/c"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if server.Clean(p) && p != "/" && path.Clean(p) != strings.TrimSuffix(p, "/") || server.Clean(p) && !path.IsAbs(p) {
			t.Errorf("%q is clean", p)
		}
	})
}
