package httpbound

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Limits of all servers.
const (
	// HeadTime limits the time of a TLS handshake, and the time to receive a request's head.
	HeadTime = 10 * time.Second
	// idleTime is the time after which an idle connection is closed, as in the kubelet.
	idleTime = 90 * time.Second
	// writeTime is the time after which the connection of an HTTP/2 client that reads nothing
	// is closed.
	writeTime = 30 * time.Second
	// maxStreams limits the concurrent requests of an HTTP/2 connection.
	maxStreams = 100
	// Limits of HTTP/2 in bytes: buffered request bodies of a connection and of one request,
	// and the size of a frame.
	maxUnread, maxUnreadOfOne, maxFrame = 128 << 10, 64 << 10, 16 << 10
)

// Config configures a Server. Handler and Connections are required. Every other field has a
// default for its zero value.
type Config struct {
	Handler http.Handler
	TLS     *tls.Config // if nil, the server has no TLS
	// HTTP2 serves HTTP/2 in addition to HTTP/1.1, over TLS only.
	HTTP2 bool
	// MaxHead limits the bytes of a request's head. The default is 1 MiB.
	MaxHead int
	// Connections is the maximum number of connections. At most a quarter of it may be connections
	// that have had no request yet.
	Connections int
	// OfHost is the maximum number of connections of one client address. If it is 0, there is no
	// such limit. Clients without an address, for example on unix sockets, count as one.
	OfHost int

	Log *zap.Logger // if nil, nothing is logged
}

// Server is an http.Server with limits. Serve limits the connections; Serve and ServeTLS of the
// embedded http.Server do not.
type Server struct {
	*http.Server

	cfg Config
}

// New returns a Server that serves nothing until Serve is called.
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
	// Any client can cause failed handshakes and broken connections, so they have the level
	// debug. NewStdLogAt fails only for an unknown level.
	errorLog, _ := zap.NewStdLogAt(cfg.Log, zap.DebugLevel)
	s := &Server{cfg: cfg, Server: &http.Server{
		Handler: working(cfg.Handler), Protocols: protocols,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" needs authentication, too
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

// Serve serves the clients of a listener until the Server is shut down or closed. It
// closes the listener. The error is never nil; after Shutdown or Close it is
// http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	l = &conns{Listener: l, limit: s.cfg.Connections, of: s.cfg.OfHost, newcomers: max(s.cfg.Connections/4, 1), from: map[string]int{}}
	if s.TLSConfig != nil {
		return s.ServeTLS(l, "", "")
	}
	return s.Server.Serve(l)
}

// working returns a handler that calls h and counts the running requests of each connection.
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
