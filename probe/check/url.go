package check

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// URL returns the URL of a check. path may have a query. An invalid path is used literally. An
// IPv6 host is given without brackets.
func URL(scheme, host string, port int, path string) *url.URL {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	// These are set whatever path contains.
	u.Scheme, u.Host, u.User, u.Opaque = scheme, net.JoinHostPort(host, strconv.Itoa(port)), nil, ""
	return u
}

// Header adds the default headers of a check: a User-Agent if there is none, and
// Accept: */*. An existing empty header is not sent. h is changed and returned; it
// may be nil.
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
