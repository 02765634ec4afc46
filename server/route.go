package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/httpbound"
	"github.com/nodewright/nodewright/server/auth"
)

// route is one endpoint. If methods is nil, all methods are allowed.
type route struct {
	pattern string // pattern of http.ServeMux, without a method
	methods []string
	serve   http.HandlerFunc

	basic  bool          // also on the read-only port
	health bool          // also on the healthz port
	stream bool          // ended by the client: no timeout
	heavy  bool          // expensive: few at a time
	body   bool          // the body is read before the request takes a slot of an expensive endpoint or a stream
	budget time.Duration // replaces requestTime
}

var (
	get     = []string{http.MethodGet}
	post    = []string{http.MethodPost}
	getPost = []string{http.MethodGet, http.MethodPost}
)

// routes returns every endpoint of the main server. It has no side effects, since statusz calls
// it again.
func (s *Server) routes() []route {
	rs := s.healthRoutes()
	rs = append(rs, route{pattern: "/pods", methods: get, basic: true, serve: s.pods},
		route{pattern: "/pods/{$}", methods: get, basic: true, serve: s.pods})
	if s.cfg.Stats != nil {
		rs = append(rs, route{pattern: "/stats/summary", methods: getPost, basic: true, heavy: true, body: true, serve: s.summary})
	}
	rs = append(rs, s.metricRoutes()...)
	// Disabled endpoints answer, so that they do not look like mistyped paths.
	if !s.cfg.EnableDebuggingHandlers {
		for _, p := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
			rs = append(rs, route{pattern: p, serve: disabled("Debug endpoints are disabled.")})
		}
		return rs
	}
	rs = append(rs, s.streamRoutes()...)
	rs = append(rs, s.logRoutes()...)
	if s.cfg.Running != nil {
		rs = append(rs, route{pattern: "/runningpods", methods: get, serve: s.runningPods},
			route{pattern: "/runningpods/{$}", methods: get, serve: s.runningPods})
	}
	return append(rs, s.debugRoutes()...)
}

// disabled answers 405 to every method.
func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// only returns the routes for which keep returns true.
func only(rs []route, keep func(route) bool) []route {
	return slices.DeleteFunc(slices.Clone(rs), func(r route) bool { return !keep(r) })
}

// allows returns the methods of an endpoint. GET includes HEAD, except for streams and profiles;
// net/http then omits the body.
func (r route) allows() []string {
	if !slices.Contains(r.methods, http.MethodGet) || r.stream || strings.HasPrefix(r.pattern, "/debug/") {
		return r.methods
	}
	return append(slices.Clone(r.methods), http.MethodHead)
}

// mux dispatches requests to the routes, with each route's methods and limits. A route for a
// tree of paths also serves the path without the trailing slash, for which ServeMux would
// redirect.
func (s *Server) mux(rs []route) *http.ServeMux {
	m := http.NewServeMux()
	// A tree does not override a route for its root.
	var have []string
	for _, r := range rs {
		have = append(have, r.pattern)
	}
	for _, r := range rs {
		// One handler for both patterns, so that they share limits.
		serve := s.limited(r)
		m.HandleFunc(r.pattern, serve)
		if root, tree := strings.CutSuffix(r.pattern, "/"); tree && !slices.Contains(have, root) {
			m.HandleFunc(root, serve)
		}
	}
	return m
}

const (
	// maxBody limits the bytes of a request's body, and bodyTime the time to receive it.
	maxBody  = 1 << 20
	bodyTime = 10 * time.Second
	// maxBodies limits the bytes of all bodies together. One user may have a quarter.
	maxBodies = 64 << 20
)

// tooMany asks a client to try again. One second in Retry-After is a guess.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "too many requests of this kind at a time", http.StatusTooManyRequests)
}

// limited returns the handler of a route with the limits of the route. It is called once for each
// route and server, since all requests of the route share the counters.
func (s *Server) limited(r route) http.HandlerFunc {
	// of counts the requests of this route.
	of, kind, methods := newInFlight(heavyRequests), s.kind(r), r.allows()
	budget := requestTime
	if r.budget > 0 {
		budget = r.budget
	}
	return func(w http.ResponseWriter, req *http.Request) {
		// RFC 9110, section 15.5.6: a 405 names the methods that there are.
		if methods != nil && !slices.Contains(methods, req.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		user := userOf(req)
		if r.body {
			taken, ok := s.arrive(w, req, budget)
			defer s.bodies.Give(httpbound.Client{Name: user}, taken)
			if !ok {
				return
			}
		}
		if r.heavy {
			// Refused, not queued, since scrapers try again anyway.
			if !of.enter(user) {
				tooMany(w)
				return
			}
			defer of.leave(user)
		}
		if !r.stream {
			ctx, cancel := context.WithTimeout(req.Context(), budget)
			defer cancel()
			s.within(w, budget)
			req = req.WithContext(ctx)
			// The body of a stream is its input, which has no limit.
			req.Body = http.MaxBytesReader(w, req.Body, maxBody)
			r.serve(w, req)
			return
		}
		// A stream needs a slot for its kind, and one for all streams.
		if !kind.enter("") {
			tooMany(w)
			return
		}
		defer kind.leave("")
		if !s.streams.enter(user) {
			tooMany(w)
			return
		}
		defer s.streams.leave(user)
		// From here on the request counts as a stream, so its slot for ordinary requests is
		// freed.
		if leave, ok := req.Context().Value(leaveKey{}).(func()); ok {
			leave()
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		// net/http's Shutdown does not track hijacked connections, so end them here.
		defer context.AfterFunc(s.ending, cancel)()
		// A stream may be idle for hours. The runtime limits that.
		s.within(w, 0)
		r.serve(w, req.WithContext(ctx))
	}
}

// kind returns the counter for one kind of streams, such as port forwards. It is limited to three
// quarters of all streams, so that other kinds remain possible.
func (s *Server) kind(r route) *inFlight {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.pattern, "/"), "/")
	if s.kinds[name] == nil {
		// Only New writes to the map, so no lock is needed.
		s.kinds[name] = newInFlight(s.cfg.Streams - s.cfg.Streams/4)
	}
	return s.kinds[name]
}

// leaveKey is the context key of a function that frees the request's slot for ordinary requests.
// A stream calls it after taking its own slot. The value is a func() that may be called more than
// once.
type leaveKey struct{}

const (
	// requestTime limits a request without streaming.
	requestTime = 30 * time.Second
	// late is the time that a client has to read the answer after the deadline of the endpoint.
	late = 10 * time.Second
	// heavyRequests limits the concurrent requests to each expensive endpoint.
	heavyRequests = 8
)

// within sets the deadlines for reading the request's body and for writing the answer. Both are now
// plus budget plus late. They replace earlier deadlines. If budget is 0, there are no deadlines.
func (s *Server) within(w http.ResponseWriter, budget time.Duration) {
	rc := http.NewResponseController(w)
	var at time.Time
	if budget > 0 {
		// The answer may be ready just before the deadline, and still has to be sent.
		at = time.Now().Add(budget + late)
	}
	// A recorder in tests has no deadlines, and needs none.
	_ = rc.SetReadDeadline(at)
	_ = rc.SetWriteDeadline(at)
}

// outermost measures requests, and sets the deadlines for reading and answering them. server is a
// label of metrics: readwrite or readonly.
func (s *Server) outermost(server string, rs []route, next http.Handler) http.Handler {
	label := newLabels(server, rs)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.met.observe(label.of(r))()
		s.within(w, requestTime)
		next.ServeHTTP(w, r)
	})
}

// placed limits the concurrent requests of one port. Requests above the limit are
// answered with 429 at once.
func (s *Server) placed(next http.Handler) http.Handler {
	places := newInFlight(s.cfg.Requests)
	s.plain = append(s.plain, places)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := userOf(r)
		if !places.enter(user) {
			tooMany(w)
			return
		}
		// A stream frees the slot early; it must not be freed twice.
		leave := sync.OnceFunc(func() { places.leave(user) })
		defer leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), leaveKey{}, leave)))
	})
}

// userKey is the context key of the name of a request's user.
type userKey struct{}

// userOf returns the name of a request's user. It returns "" if the request was not
// authenticated.
func userOf(r *http.Request) string {
	name, _ := r.Context().Value(userKey{}).(string)
	return name
}

// arrive reads the body of a request. If ok is false, it has already answered the request with an
// error. taken is the number of bytes that it took from s.bodies, even if ok is false.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request, budget time.Duration) (taken int64, ok bool) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // fails in tests with a recorder
	data, err := httpbound.Body(w, r, maxBody, func(n int) bool {
		took := s.bodies.Take(httpbound.Client{Name: userOf(r)}, int64(n))
		if took {
			taken += int64(n)
		}
		return took
	})
	switch {
	case err == nil:
		r.Body = io.NopCloser(bytes.NewReader(data))
		s.within(w, budget)
		return taken, true
	case errors.Is(err, httpbound.ErrNoRoom):
		tooMany(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		http.Error(w, "the body was not received within "+bodyTime.String(), http.StatusRequestTimeout)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return taken, false
}

// cleanPaths refuses requests whose paths are not clean.
func cleanPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !clean(r.URL.Path) {
			http.Error(w, "the path has empty elements, or . or ..", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// strangers limits the concurrent requests that are not yet authorized. An [auth.AccessConfig]
// has a lower limit for requests that wait; this limit is for other Authenticators and
// Authorizers.
const strangers = 2048

// guard passes on requests that are authenticated and authorized, whatever their paths.
// Requests do not count toward the limit of ordinary requests before they are authorized.
func (s *Server) guard(next http.Handler) http.Handler {
	arriving := newInFlight(strangers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !arriving.enter("") {
			tooMany(w)
			return
		}
		user, passed := s.passes(w, r)
		// The slot for unauthorized requests is freed before the request is served.
		arriving.leave("")
		if passed {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		}
	})
}

// passes authenticates and authorizes a request, and returns the name of its user. If ok is
// false, it has already answered the request with an error.
func (s *Server) passes(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	// Webhooks have their own deadlines; this one is for other implementations.
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	r = r.WithContext(ctx)
	// A nil user without an error means that the request has no credentials.
	user, err := s.cfg.Authenticator.Authenticate(r)
	// 429, not 401: under load, a valid token must not look like an invalid one.
	if errors.Is(err, auth.ErrBusy) {
		tooMany(w)
		return "", false
	}
	if err != nil || user == nil {
		if err != nil {
			s.cfg.Log.Debug("authentication failed", zapError(err))
		}
		// The reason is only logged.
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return "", false
	}
	// Checked after authentication, so that unauthenticated clients learn nothing about paths.
	if !clean(r.URL.Path) {
		http.Error(w, "the path has empty elements, or . or ..", http.StatusBadRequest)
		return "", false
	}
	asked := auth.Of(user, r, s.cfg.Node)
	var tried []string
	// A path may need a fine-grained subresource or proxy (KEP-2862); one of them is enough.
	for _, a := range asked {
		ok, _, err := s.cfg.Authorizer.Authorize(r.Context(), a)
		if errors.Is(err, auth.ErrBusy) {
			tooMany(w)
			return "", false
		}
		// If an authorizer cannot decide, the request fails; it is never allowed.
		if err != nil {
			s.cfg.Log.Warn("authorization failed", zapError(err))
			http.Error(w, "authorization error (user="+user.Name+", verb="+a.Verb+", resource=nodes, subresource="+a.Subresource+")", http.StatusInternalServerError)
			return "", false
		}
		if ok {
			return user.Name, true
		}
		// The answer names all of them, so that a missing permission can be found.
		tried = append(tried, a.Subresource)
	}
	http.Error(w, "Forbidden (user="+user.Name+", verb="+auth.Verb(r.Method)+", resource=nodes, subresource(s)=["+strings.Join(tried, " ")+"])", http.StatusForbidden)
	return "", false
}

// clean reports whether a path has no empty element, and none that is "." or "..", so that
// authorization and routing see the same path. A trailing slash is allowed, as in /pods/.
func clean(p string) bool {
	return p == "/" || strings.HasPrefix(p, "/") && path.Clean(p) == strings.TrimSuffix(p, "/")
}
