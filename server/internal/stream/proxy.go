package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kind says what a stream is for.
type Kind string

// The kinds, named as the subresources of pods.
const (
	Exec        Kind = "exec"
	Attach      Kind = "attach"
	PortForward Kind = "portforward"
)

// Request describes a stream between a client and the runtime's streaming server.
type Request struct {
	Kind   Kind
	Target string // the runtime's URL
	// Streams are the streams of a remote command.
	Streams Streams
	// Translate translates the protocols that runtimes do not support (the feature
	// ExtendWebSocketsToKubelet). Without it, the runtime has to reject them.
	Translate bool
}

// Streams says which streams a remote command has.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// IsUpgrade reports whether a request asks to change the protocol.
func IsUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" && hasToken(r.Header.Values("Connection"), "upgrade")
}

// IsWebSocket reports whether a request asks for a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return IsUpgrade(r) && hasToken(r.Header.Values("Upgrade"), "websocket")
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// Translated reports whether Proxy would translate the protocol that r requests.
func Translated(r *http.Request, kind Kind) bool {
	offered := subprotocols(r)
	if kind == PortForward {
		return slices.Contains(offered, tunnelProtocol)
	}
	return slices.Contains(offered, channelV5)
}

func subprotocols(r *http.Request) []string {
	if !IsWebSocket(r) {
		return nil
	}
	var out []string
	for _, v := range r.Header.Values("Sec-Websocket-Protocol") {
		for part := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(part))
		}
	}
	return out
}

// Proxy serves a stream until the client, the runtime or ctx ends it. It always answers the
// client itself. The error says why there was no stream, or why it ended early.
func Proxy(ctx context.Context, w http.ResponseWriter, r *http.Request, q Request) error {
	if !IsUpgrade(r) {
		err := errors.New("upgrade request required")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return err
	}
	if r.ProtoMajor != 1 {
		err := fmt.Errorf("streams need HTTP/1.1, not %s", r.Proto)
		http.Error(w, err.Error(), http.StatusHTTPVersionNotSupported)
		return err
	}
	if q.Translate && Translated(r, q.Kind) {
		if q.Kind == PortForward {
			return tunnel(ctx, w, r, q)
		}
		return translate(ctx, w, r, q)
	}
	return pass(ctx, w, r, q)
}

// pass forwards a protocol unchanged.
func pass(ctx context.Context, w http.ResponseWriter, r *http.Request, q Request) error {
	h := forwarded(r.Header)
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", r.Header.Get("Upgrade"))
	b, err := upgrade(ctx, w, r.Method, q.Target, h)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot be upgraded", http.StatusInternalServerError)
		return err
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{})
	head := &http.Response{
		StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: b.head.Header,
	}
	if err := writeHead(client, head); err != nil {
		return err
	}
	join(ctx, client, buffered.Reader, b)
	return nil
}

// writeHead writes only the head of a response.
func writeHead(w io.Writer, resp *http.Response) error {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	if err := resp.Header.Write(&b); err != nil {
		return err
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// upgrade calls the runtime, and passes any answer other than an upgrade to the client.
func upgrade(ctx context.Context, w http.ResponseWriter, method, target string, h http.Header) (*backend, error) {
	b, err := dial(ctx, target, method, h)
	if err != nil {
		code := http.StatusBadGateway
		if errors.Is(err, ErrTarget) {
			code = http.StatusInternalServerError
		}
		http.Error(w, err.Error(), code)
		return nil, err
	}
	if b.head.StatusCode == http.StatusSwitchingProtocols {
		return b, nil
	}
	defer func() { _ = b.Close() }()
	defer func() { _ = b.head.Body.Close() }()
	code := b.head.StatusCode
	if code < 400 { // a redirect or another unexpected status
		err := fmt.Errorf("the runtime's streaming server answered %s to a request for an upgrade", b.head.Status)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return nil, err
	}
	_ = b.SetReadDeadline(time.Now().Add(dialTimeout))
	text, err := io.ReadAll(io.LimitReader(b.head.Body, 64<<10))
	http.Error(w, strings.TrimSpace(string(text)), code)
	return nil, errors.Join(fmt.Errorf("the runtime's streaming server answered %s", b.head.Status), err)
}

// join copies in both directions until either side or ctx ends.
func join(ctx context.Context, client net.Conn, early io.Reader, b *backend) {
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = b.Close()
	})
	defer stop()
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(b.Conn, early) // includes data that the client sent early
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(client, b.r)
		done <- struct{}{}
	}()
	<-done
	_ = client.Close()
	_ = b.Close()
	<-done
}
