package httpbound

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Bounds of all servers.
const (
	// HeadTime is how long a client has for its handshake, and for the head of a
	// request.
	HeadTime = 10 * time.Second
	// idleTime is how long a connection may have no request; the kubelet's.
	idleTime = 90 * time.Second
	// writeTime is how long a client of HTTP/2 may read nothing.
	writeTime = 30 * time.Second
	// maxStreams is how many requests a connection of HTTP/2 may have at a time.
	maxStreams = 100
	// Bytes that HTTP/2 keeps of bodies that nobody has read, and of a frame.
	maxUnread, maxUnreadOfOne, maxFrame = 128 << 10, 64 << 10, 16 << 10
)

// Config holds what a Server needs. Handler and Connections are required; the zero
// value of every other field means the default named beside it.
type Config struct {
	Handler http.Handler
	TLS     *tls.Config // none
	// HTTP2 serves HTTP/2 beside HTTP/1.1, with TLS alone.
	HTTP2 bool
	// MaxHead is the most bytes of a request's head; 1 MiB.
	MaxHead int
	// Connections is how many connections there may be at a time; a quarter of them
	// may be without a request so far.
	Connections int
	// OfHost is how many of them one host may have; all. Any number of clients share
	// a host if its addresses are not known, as with unix sockets.
	OfHost int

	Log *zap.Logger // silent
}

// Server is an http.Server within bounds. Serve and ServeTLS of the http.Server itself
// are without those of connections.
type Server struct {
	*http.Server

	cfg Config
}

// New returns a Server at rest.
func New(cfg Config) *Server {
	if cfg.OfHost == 0 {
		cfg.OfHost = cfg.Connections
	}
	if cfg.MaxHead == 0 {
		cfg.MaxHead = 1 << 20
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(cfg.HTTP2 && cfg.TLS != nil)
	// Failed handshakes and broken connections can be caused by any client. The ignored
	// error is for an unknown level.
	errorLog, _ := zap.NewStdLogAt(cfg.Log, zap.DebugLevel)
	s := &Server{cfg: cfg, Server: &http.Server{
		Handler: working(cfg.Handler), Protocols: protocols,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" has to be authenticated, too
		ReadHeaderTimeout:            HeadTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               cfg.MaxHead,
		ErrorLog:                     errorLog,
		ConnContext:                  withConn,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, WriteByteTimeout: writeTime, MaxReadFrameSize: maxFrame,
			MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnreadOfOne,
		},
	}}
	if cfg.TLS != nil {
		s.TLSConfig = cfg.TLS.Clone() // net/http may add to it
	}
	return s
}

// Serve serves clients of a listener, which it closes, until the Server is shut down or
// closed. The error is never nil.
func (s *Server) Serve(l net.Listener) error {
	l = &conns{Listener: l, limit: s.cfg.Connections, of: s.cfg.OfHost, newcomers: max(s.cfg.Connections/4, 1), from: map[string]int{}}
	if s.TLSConfig != nil {
		return s.ServeTLS(l, "", "")
	}
	return s.Server.Serve(l)
}

// working notes the connections of requests at work.
func working(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.begin()
			defer c.end()
		}
		h.ServeHTTP(w, r)
	})
}

// connKey is the context key of a request's *conn.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}
