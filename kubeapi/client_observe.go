package kubeapi

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Observer gets the results of the calls of one or more Clients. Its methods are
// called from any goroutine and must return at once.
type Observer interface {
	// Exchanged reports one request to a server; a repeated call makes several requests. code is
	// the status code of the answer, or 0 if there was none. took is the time until the answer
	// began, or 0 for a watch.
	Exchanged(method, host string, code int, took time.Duration)
	// WatchBegun reports that a watch was opened, or the error if it was not.
	// WatchEnded reports that an opened watch has ended.
	WatchBegun(r Resource, err error)
	WatchEnded(r Resource)
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

// observe reports a requested watch to the Observer.
func (c *Client) observe(r Resource) func(watch.Interface, error) (watch.Interface, error) {
	return func(w watch.Interface, err error) (watch.Interface, error) {
		if c.told == nil {
			return w, err
		}
		c.told.WatchBegun(r, err)
		if err != nil {
			return w, err
		}
		return &observedWatch{Interface: w, ended: func() { c.told.WatchEnded(r) }}, nil
	}
}

// observedWatch reports the end of its watch to the Observer when Stop is called.
type observedWatch struct {
	watch.Interface
	once  sync.Once
	ended func()
}

// Stop implements watch.Interface. The caller must call it even if the server has ended
// the watch.
func (w *observedWatch) Stop() {
	w.Interface.Stop()
	w.once.Do(w.ended)
}
