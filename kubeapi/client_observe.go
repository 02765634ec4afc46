package kubeapi

import (
	"net/http"
	"time"
)

// Observer gets the results of the calls of one or more Clients. Its method is
// called from any goroutine and must return at once.
type Observer interface {
	// Exchanged reports one request to a server; a repeated call makes several requests. code is
	// the status code of the answer, or 0 if there was none. took is the time until the answer
	// began, or 0 for a watch.
	Exchanged(method, host string, code int, took time.Duration)
}

// exchanges is a RoundTripper that reports each exchange to an Observer.
type exchanges struct {
	next http.RoundTripper
	told Observer
}

// observed wraps next, so that observer gets each exchange. If observer is nil, it returns next.
func observed(next http.RoundTripper, observer Observer) http.RoundTripper {
	if observer == nil {
		return next
	}
	return exchanges{next, observer}
}

// RoundTrip implements http.RoundTripper. It reports each try of a call, before the
// body of the answer is read.
func (e exchanges) RoundTrip(req *http.Request) (*http.Response, error) {
	watches := req.URL.Query().Get("watch") == "true"
	answered := e.trafficked(req, watches)
	begun, code := time.Now(), 0
	res, err := e.next.RoundTrip(req)
	took := time.Since(begun)
	if err == nil {
		code = res.StatusCode
	}
	// The server answers a watch at its first event, so the time until the answer means nothing.
	if watches {
		took = 0
	}
	answered(res, code)
	e.told.Exchanged(req.Method, req.URL.Host, code, took)
	return res, err
}
