package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxRedirects of one check, the kubelet's limit.
const maxRedirects = 10

// HTTP checks by the answer to a GET request.
type HTTP struct {
	URL *url.URL
	// Header is sent unchanged, see [Header]; its Host is the request's host.
	Header http.Header
	// Client makes the request. If Client is nil, each check creates one.
	Client *Client
}

// Client makes the requests of any number of HTTP checks. It uses no proxy, does
// not verify certificates (nodes do not know their authorities), and requests no
// compression.
type Client struct{ transport *http.Transport }

// idleTimeout is how long an idle connection is kept.
const idleTimeout = 90 * time.Second

// ClientConfig configures a [Client].
type ClientConfig struct {
	// KeepAlive reuses connections between checks. That is cheaper, but a server
	// that accepts no new connections passes. At most one idle connection for each
	// server is kept for 90 s.
	KeepAlive bool
	// Graceful closes connections with a FIN instead of a reset.
	Graceful bool
}

// NewClient returns a Client.
func NewClient(cfg ClientConfig) *Client {
	return &Client{transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return Dial(ctx, addr, cfg.Graceful)
		},
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see Client
		DisableKeepAlives:      !cfg.KeepAlive,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// Close closes idle connections. The Client can still be used.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Check makes the request. A status of 200 to 299 is a Success with the body as
// output. A redirect to another host is not followed and is a Warning. Any other
// status, or no answer, is a Failure. An answer that breaks off is a Failure with
// an error. Bodies are cut at MaxOutput, and headers of more than 64 KiB are a
// Failure.
func (h HTTP) Check(ctx context.Context) (Outcome, string, error) {
	client := h.Client
	if client == nil {
		client = NewClient(ClientConfig{})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL.String(), nil)
	if err != nil {
		return Unknown, "", err
	}
	if h.Header != nil {
		req.Header = h.Header
	}
	if host := h.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := (&http.Client{Transport: client.transport, CheckRedirect: h.redirect}).Do(req)
	if err != nil {
		out := err.Error() // it may contain the server's text, such as a header of 64 KiB
		return Failure, strings.Clone(out[:min(len(out), MaxOutput)]), nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxOutput))
	switch {
	case err != nil && ctx.Err() != nil:
		return Failure, fmt.Sprintf("Get %q: read the body: %v", h.URL, err), nil
	case err != nil:
		return Failure, "", fmt.Errorf("read the body: %w", err)
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return Success, string(body), nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		out := "Probe terminated redirects, Response body: " + string(body)
		return Warning, out[:min(len(out), MaxOutput)], nil
	default:
		return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode), nil
	}
}

// redirect follows redirects to the original host, at any port.
func (h HTTP) redirect(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	if host := h.Header.Get("Host"); host != "" {
		next.Host = host
	}
	return nil
}
