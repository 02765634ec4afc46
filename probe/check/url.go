package check

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// URL puts together what a check asks for. path may carry a query; one that
// cannot be parsed is taken literally. An IPv6 host is given without brackets.
func URL(scheme, host string, port int, path string) *url.URL {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	// Whatever path says of these, the check goes where it is told to.
	u.Scheme, u.Host, u.User, u.Opaque = scheme, net.JoinHostPort(host, strconv.Itoa(port)), nil, ""
	return u
}

// Header fills in what every check sends: a User-Agent if there is none, and
// Accept: */*. A header that is there but empty is not sent. h is changed, and
// returned; it may be nil.
func Header(h http.Header, userAgent string) http.Header {
	if h == nil {
		h = http.Header{}
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", userAgent)
	}
	if accept, ok := h["Accept"]; !ok {
		h.Set("Accept", "*/*")
	} else if accept[0] == "" {
		h.Del("Accept")
	}
	return h
}
