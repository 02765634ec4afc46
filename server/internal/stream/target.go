package stream

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"
)

// ErrTarget means that a URL from the runtime must not be used.
var ErrTarget = errors.New("streaming URL of the runtime")

// dialTimeout limits the wait for the runtime's answer to an upgrade. The runtime is on this
// machine.
const dialTimeout = 30 * time.Second

// checkTarget parses a runtime's URL and returns where to dial. The URL of a unix socket is
// unix://SOCKET/METHOD/TOKEN, with the socket's absolute path.
func checkTarget(raw string) (u *url.URL, network, addr string, err error) {
	u, err = url.Parse(raw)
	if err != nil {
		return nil, "", "", fmt.Errorf("%w: %w", ErrTarget, err)
	}
	if u.User != nil {
		return nil, "", "", fmt.Errorf("%w: it contains a user name; want none", ErrTarget)
	}
	if u.Scheme == "unix" {
		if u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) != u.Path {
			return nil, "", "", fmt.Errorf("%w %q: want unix:///SOCKET/METHOD/TOKEN", ErrTarget, raw)
		}
		return u, "unix", path.Dir(path.Dir(u.Path)), nil
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, "", "", fmt.Errorf("%w %q: scheme %q; want http, https or unix", ErrTarget, raw, u.Scheme)
	}
	host := u.Hostname()
	if host == "localhost" {
		host = "127.0.0.1" // not resolved
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Unmap().IsLoopback() {
		return nil, "", "", fmt.Errorf("%w %q: host %q; want localhost or a loopback address", ErrTarget, raw, u.Hostname())
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u, "tcp", net.JoinHostPort(host, port), nil
}

// backend is an upgraded connection to the runtime.
type backend struct {
	net.Conn
	r    *bufio.Reader // has data that was read after the response's head
	head *http.Response
}

// Read reads the data that the runtime sends after the head of its response.
func (b *backend) Read(p []byte) (int, error) { return b.r.Read(p) }

// dial sends a request for an upgrade to the runtime. If the runtime upgrades the connection, b
// is that connection. Otherwise b has only the runtime's answer, for the client.
func dial(ctx context.Context, target, method string, header http.Header) (b *backend, err error) {
	u, network, addr, err := checkTarget(target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	if u.Scheme == "https" {
		t := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = t
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	req := &http.Request{Method: method, URL: u, Host: cmp.Or(u.Host, "localhost"), Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(io.LimitReader(conn, maxHead), 4<<10)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fmt.Errorf("answer of the runtime's streaming server: %w", err)
	}
	if !stop() {
		_ = resp.Body.Close()
		return nil, ctx.Err()
	}
	early, _ := r.Peek(r.Buffered())
	rest := bufio.NewReader(io.MultiReader(strings.NewReader(string(early)), conn))
	if resp.StatusCode != http.StatusSwitchingProtocols {
		rest = nil
	}
	return &backend{Conn: conn, r: rest, head: resp}, nil
}

// maxHead limits the bytes of a runtime's answer: its head or, if it is not an upgrade, all of
// it.
const maxHead = 1 << 20

// forwarded returns the headers of a client's request that the runtime needs. It omits
// credentials and hop-by-hop headers.
func forwarded(h http.Header) http.Header {
	out := http.Header{}
	for name, v := range h {
		switch {
		case strings.HasPrefix(name, "Sec-Websocket-"), name == "User-Agent", name == "Origin",
			name == http.CanonicalHeaderKey(protocolHeader), name == http.CanonicalHeaderKey(acceptedHeader):
			out[name] = v
		}
	}
	return out
}

// Headers by which a SPDY client and server agree on a protocol.
const (
	protocolHeader = "X-Stream-Protocol-Version"
	acceptedHeader = "X-Accepted-Stream-Protocol-Versions"
)
