package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/httpbound"
)

// Server serves a node's HTTP API. It is safe for concurrent use. Fields that New sets are
// constant; others have their own locks.
type Server struct {
	cfg   Config
	met   *metrics
	slis  *slis
	began time.Time
	// The handlers of the three ports, each with its own counters.
	main   http.Handler
	basic  http.Handler
	health http.Handler

	plain   []*inFlight          // ordinary requests, by port
	streams *inFlight            // streams
	bodies  *httpbound.Pool      // bytes of bodies in memory
	kinds   map[string]*inFlight // streams by kind, the first element of their path
	ending  context.Context      // canceled when streams have to end
	// end cancels ending. Run calls it once, after the requests have ended.
	end context.CancelFunc
}

// New validates cfg and returns a Server; call Run to start it. New opens nothing and starts no
// goroutine.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	met, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{
		cfg: cfg, met: met, slis: newSLIs(), began: time.Now(),
		streams: newInFlight(cfg.Streams), kinds: map[string]*inFlight{},
		bodies: httpbound.NewPool(maxBodies, maxBodies/4),
	}
	s.ending, s.end = context.WithCancel(context.Background())
	routes := s.routes()
	guard := s.guard
	// guard checks paths too; without guard it is still needed.
	if cfg.Inner {
		guard = cleanPaths
	}
	// From the outside inwards: measured, authorized, counted, routed. So an unauthorized request
	// takes no slot.
	s.main = s.outermost("readwrite", routes, guard(s.placed(s.mux(routes))))
	// The other two ports have no authentication, and fewer endpoints.
	basic := only(routes, func(r route) bool { return r.basic })
	s.basic = s.outermost("readonly", basic, s.placed(s.mux(basic)))
	healthz := only(routes, func(r route) bool { return r.health })
	s.health = s.outermost("readonly", healthz, s.placed(s.mux(healthz)))
	return s, nil
}

// Handler returns the main server's handler: all endpoints, behind authentication and
// authorization unless Config.Inner is set. It is for programs with their own listener. It works
// without Run.
func (s *Server) Handler() http.Handler { return s.main }

// Run listens and serves until ctx ends. Then it completes running requests, ends streams last,
// and returns nil. If a port cannot be opened, or fails later, Run returns an error. It may be
// called once.
func (s *Server) Run(ctx context.Context) error {
	ports, err := s.listen()
	if err != nil {
		return err
	}
	// Buffered for all ports, so that no goroutine blocks.
	failed := make(chan error, len(ports))
	// Each port has a goroutine; at its end, Run waits for all of them.
	var serving sync.WaitGroup
	for _, p := range ports {
		serving.Go(func() {
			// ErrServerClosed follows Shutdown and is not a failure.
			if err := p.srv.Serve(p.l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	select {
	case <-ctx.Done():
	// If one port fails, all end, and the program decides what to do.
	case err = <-failed:
		err = fmt.Errorf("server: %w", err)
	}
	// ctx may have ended, so the grace period has a context of its own.
	s.shutdown(context.WithoutCancel(ctx), ports)
	serving.Wait()
	return err
}

// port is an open port with its server.
type port struct {
	srv *httpbound.Server
	l   net.Listener
}

// listen opens all ports, or none: a node that answers on some ports only would be worse.
func (s *Server) listen() ([]port, error) {
	var ports []port
	var errs []error
	for _, d := range []struct {
		name    string
		given   net.Listener
		address string
		port    int
		handler http.Handler
		tls     *tls.Config
	}{
		{"main", s.cfg.Main, s.cfg.Address, s.cfg.Port, s.main, s.cfg.TLS},
		{"read-only", s.cfg.ReadOnly, s.cfg.Address, s.cfg.ReadOnlyPort, s.basic, nil},
		{"healthz", s.cfg.Healthz, s.cfg.HealthzAddress, s.cfg.HealthzPort, s.health, nil},
	} {
		l := d.given
		if l == nil {
			if d.port == 0 {
				continue
			}
			var err error
			if l, err = net.Listen("tcp", net.JoinHostPort(d.address, strconv.Itoa(d.port))); err != nil {
				errs = append(errs, fmt.Errorf("server: %s port: %w", d.name, err))
				continue
			}
		}
		s.cfg.Log.Info("listening", zap.String("server", d.name), zap.Stringer("address", l.Addr()))
		ports = append(ports, port{s.httpServer(d.handler, d.tls), l})
	}
	if len(errs) > 0 {
		for _, p := range ports {
			_ = p.l.Close()
		}
		return nil, errors.Join(errs...)
	}
	return ports, nil
}

// shutdown ends the servers in this order: no more requests are accepted, running requests
// complete, streams are ended, everything else is cut off when the grace period is over.
func (s *Server) shutdown(ctx context.Context, ports []port) {
	graced, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var down sync.WaitGroup
	for _, p := range ports {
		// All ports in parallel, since they share the grace period.
		down.Go(func() { _ = p.srv.Shutdown(graced) })
	}
	// Requests end by themselves, within their deadlines; streams would not.
	for _, p := range s.plain {
		p.wait(graced)
	}
	// Streams are ended by their contexts now, not at the end of the grace period.
	s.end()
	s.streams.wait(graced)
	down.Wait()
	for _, p := range ports {
		_ = p.srv.Close()
	}
}

// hosts limits the connections of all hosts together, as a multiple of the limit for one host.
const hosts = 8

// httpServer returns a server for one port, with the limits that apply before a request is read.
// All other limits are per endpoint. conf is nil for a port without TLS. A host may have twice as
// many connections as requests, since connections stay open between requests.
func (s *Server) httpServer(h http.Handler, conf *tls.Config) *httpbound.Server {
	one := 2 * (s.cfg.Requests + s.cfg.Streams)
	return httpbound.New(httpbound.Config{
		Handler: h, TLS: conf, HTTP2: !s.cfg.DisableHTTP2, Connections: hosts * one, OfHost: one, Log: s.cfg.Log,
	})
}

// grace is the time for running requests after the end of Run's ctx. It is short enough for systemd,
// which kills processes after 90 s.
const grace = 10 * time.Second

// inFlight counts and limits requests. It never waits: a request above the limit is refused. One
// user may have seven eighths of the limit.
type inFlight struct {
	limit int

	mu   sync.Mutex
	n    int
	of   map[string]int // number of requests by user; requests without a user are not in it
	idle chan struct{}  // closed when n becomes 0; nil if no one waits
}

// newInFlight returns a counter at 0.
func newInFlight(limit int) *inFlight { return &inFlight{limit: limit, of: map[string]int{}} }

// enter takes a slot for a user. It returns false if no slot is free.
func (f *inFlight) enter(user string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n >= f.limit || f.of[user] >= f.limit-f.limit/8 {
		return false
	}
	f.n++
	if user != "" {
		f.of[user]++
	}
	return true
}

// leave frees a slot. If no slot is taken any more, it wakes the callers of wait.
func (f *inFlight) leave(user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[user]--; f.of[user] <= 0 {
		delete(f.of, user)
	}
	if f.n--; f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// wait waits until all slots are free, or ctx ends.
func (f *inFlight) wait(ctx context.Context) {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return
	}
	// Several callers may wait.
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
