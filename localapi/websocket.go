package localapi

import (
	"context"
	"io"
	"net/http"
	"strings"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// serveMessages sends a log as WebSocket messages (binary.k8s.io, base64.binary.k8s.io), for
// clients such as browsers. The parameter to is the request to the node's own API. If this
// request fails, the client gets an HTTP error.
func (s *Server) serveMessages(w *errorWriter, r, to *http.Request) {
	ctx, cancel := context.WithCancel(to.Context())
	defer cancel()
	to = to.WithContext(ctx)
	to.Header = to.Header.Clone()
	for name := range to.Header {
		if name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") {
			to.Header.Del(name)
		}
	}
	out, in := io.Pipe()
	inner := &piped{header: http.Header{}, to: in, failed: w, began: make(chan int, 1)}
	go func() {
		s.cfg.Kubelet.ServeHTTP(inner, to)
		inner.WriteHeader(http.StatusOK)
		_ = in.Close()
	}()
	if code := <-inner.began; code >= http.StatusBadRequest {
		_, _ = io.Copy(io.Discard, out) // until the end of the answer
		return
	}
	defer func() { _ = out.Close() }() // the rest of the log is not read
	// Copying fails only if the client has disconnected.
	_ = wsstream.NewReader(out, true, wsstream.NewDefaultReaderProtocols()).Copy(w.ResponseWriter, r)
}

// piped passes the body of a successful answer to a pipe, and the body of an error to
// the errorWriter.
type piped struct {
	header http.Header
	to     *io.PipeWriter
	failed *errorWriter
	began  chan int // receives the status code, once
	code   int
}

func (p *piped) Header() http.Header { return p.header }

func (p *piped) Flush() {}

func (p *piped) WriteHeader(code int) {
	if p.code != 0 {
		return
	}
	if p.code = code; code >= http.StatusBadRequest {
		p.failed.WriteHeader(code)
	}
	p.began <- code
}

func (p *piped) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	if p.code >= http.StatusBadRequest {
		return p.failed.Write(b)
	}
	return p.to.Write(b)
}
