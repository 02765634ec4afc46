package kubeapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

// Connections are dialed within dialTimeout, and the kernel probes them every keepAlive:
// client-go's defaults.
const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// dialer opens connections and keeps a list of the open ones.
type dialer struct {
	net net.Dialer

	mu   sync.Mutex
	open map[*conn]struct{}
}

// newDialer returns a dialer without connections.
func newDialer() *dialer {
	return &dialer{net: net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}, open: map[*conn]struct{}{}}
}

// dial makes a connection that closeAll can find. It blocks for at most dialTimeout.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, of: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[c] = struct{}{}
	return c, nil
}

// closeAll closes every open connection. Calls that use one fail.
func (d *dialer) closeAll() {
	d.mu.Lock()
	open := d.open
	d.open = map[*conn]struct{}{}
	d.mu.Unlock()
	// Outside the lock, since a Close may block.
	for c := range open {
		_ = c.Conn.Close()
	}
}

// conn is a connection that removes itself from its dialer's list when it is closed.
type conn struct {
	net.Conn
	of *dialer
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// httpClient returns a client as rest.HTTPClientFor does, but with a client certificate that
// may change.
func httpClient(cfg *rest.Config, certificate func() (*tls.Certificate, error)) (*http.Client, error) {
	if certificate == nil {
		return rest.HTTPClientFor(cfg)
	}
	// The certificates of cfg would be used instead, and never be replaced.
	cfg.CertFile, cfg.CertData, cfg.KeyFile, cfg.KeyData = "", nil, "", nil
	how, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	how.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: certificate}
	// rest.Config has no field for a function, but the configuration of its transport has.
	rt, err := transport.New(how)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt}, nil
}

// noRedirects returns an error for a redirect.
type noRedirects struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. The body of the answer is closed, as the
// caller sees an error.
func (n noRedirects) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := n.next.RoundTrip(req)
	if err != nil || res.StatusCode < 300 || res.StatusCode > 399 || res.Header.Get("Location") == "" {
		return res, err
	}
	_ = res.Body.Close()
	return nil, fmt.Errorf("the API server redirects to %q; redirects are not followed", res.Header.Get("Location"))
}

// limiter limits the calls of all groups together. QPS 0 is client-go's default, and a negative
// value means no limit.
func limiter(cfg *rest.Config) flowcontrol.RateLimiter {
	qps, burst := cfg.QPS, cfg.Burst
	switch {
	// A rate limiter of the caller may be shared with other clients.
	case cfg.RateLimiter != nil:
		return cfg.RateLimiter
	case qps < 0:
		return flowcontrol.NewFakeAlwaysRateLimiter()
	case qps == 0:
		qps = rest.DefaultQPS
	}
	if burst <= 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}
