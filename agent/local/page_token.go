package local

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

const cookieName = "nodewright-ui"

// WithToken admits clients that send a token. A request with ?token=TOKEN is answered with a
// cookie that has the token, and a redirect to the page without it. Later requests send the
// cookie. Requests whose Host is neither localhost, nor an IP address, nor one of hosts are
// refused, so that a foreign name that resolves to this machine cannot be used (DNS rebinding).
func WithToken(next http.Handler, token string, hosts ...string) http.Handler {
	known := func(got string) bool {
		a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(token))
		return token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ours(r.Host, hosts) {
			http.Error(w, "this page is not known by that name", http.StatusMisdirectedRequest)
			return
		}
		if got := r.URL.Query().Get("token"); known(got) {
			http.SetCookie(w, &http.Cookie{Name: cookieName, Value: token, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
			w.Header().Set("Referrer-Policy", "no-referrer")
			http.Redirect(w, r, "/"+strings.TrimLeft(r.URL.EscapedPath(), `/\`), http.StatusSeeOther) // never to another host
			return
		}
		if c, err := r.Cookie(cookieName); err != nil || !known(c.Value) {
			http.Error(w, "want the address with ?token=, as it was printed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ours reports whether a Host header names this machine.
func ours(host string, hosts []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || net.ParseIP(host) != nil {
		return true
	}
	for _, h := range hosts {
		if strings.EqualFold(h, host) {
			return true
		}
	}
	return false
}
