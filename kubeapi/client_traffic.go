package kubeapi

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
)

// Traffic is an [Observer] with more details of each call. Its methods are called
// from any goroutine and must return at once. verb is GET, POST, PUT, PATCH or
// DELETE.
type Traffic interface {
	// Sent reports the bytes of a request's body, and Received the bytes of an answer's body, as
	// they are read. Watches are left out.
	Sent(verb, host string, bytes int64)
	Received(verb, host string, bytes int64)
	// Throttled reports how long a call waited for the rate limit.
	Throttled(verb, host string, waited time.Duration)
	// Retried reports that a request is repeated. code is the status code of the previous answer,
	// or 0 if there was none.
	Retried(verb, host string, code int)
}

// call is the state of one call over all its requests.
type call struct {
	verb, host string

	mu    sync.Mutex
	tries int
	code  int // of the last answer
}

// callKey is the context key of a *call.
type callKey struct{}

// tracked returns a context for one call, if there is an observer.
func (c *Client) tracked(ctx context.Context, verb, host string) context.Context {
	if _, ok := c.told.(Traffic); !ok {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, &call{verb: verb, host: host})
}

// trafficked reports one request before it is sent. The caller passes the answer and
// its status code to the returned function.
func (e exchanges) trafficked(req *http.Request, isWatch bool) func(*http.Response, int) {
	told, ok := e.told.(Traffic)
	if !ok {
		return func(*http.Response, int) {}
	}
	host := req.URL.Host
	if c, ok := req.Context().Value(callKey{}).(*call); ok {
		c.mu.Lock()
		retry, code := c.tries > 0, c.code
		c.tries++
		c.mu.Unlock()
		if retry {
			told.Retried(req.Method, host, code)
		}
	}
	// -1 is an unknown length, which is not counted.
	if req.ContentLength > 0 {
		told.Sent(req.Method, host, req.ContentLength)
	}
	return func(res *http.Response, code int) {
		if c, ok := req.Context().Value(callKey{}).(*call); ok {
			c.mu.Lock()
			c.code = code
			c.mu.Unlock()
		}
		if res != nil && !isWatch {
			res.Body = &counted{ReadCloser: res.Body, told: func(n int64) { told.Received(req.Method, host, n) }}
		}
	}
}

// counted is the body of an answer. When it is closed, it reports how many bytes were read.
type counted struct {
	io.ReadCloser
	n    int64
	once sync.Once
	told func(int64)
}

// Read implements io.Reader. One goroutine reads a body, so that n needs no lock.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n += int64(n)
	return n, err
}

// Close reports the bytes read, once.
func (c *counted) Close() error {
	c.once.Do(func() { c.told(c.n) })
	return c.ReadCloser.Close()
}

// throttle is a rate limiter that reports how long each call waited.
type throttle struct {
	flowcontrol.RateLimiter
	told Traffic
}

// throttled wraps limit, so that observer gets the waits. If observer does not implement Traffic,
// it returns limit.
func throttled(limit flowcontrol.RateLimiter, observer Observer) flowcontrol.RateLimiter {
	if t, ok := observer.(Traffic); ok {
		return throttle{limit, t}
	}
	return limit
}

// Wait implements flowcontrol.RateLimiter.
func (t throttle) Wait(ctx context.Context) error {
	begun := time.Now()
	err := t.RateLimiter.Wait(ctx)
	// A call that did not wait is reported too, with a duration near 0.
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		t.told.Throttled(c.verb, c.host, time.Since(begun))
	}
	return err
}
