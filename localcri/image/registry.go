//go:build linux

package image

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/retry"
)

// Limits for requests to a server.
const (
	maxTalk       = 16 << 20 // bytes of an answer, except a blob
	maxHeader     = 1 << 20  // bytes of a header
	maxTries      = 5        // in a row without progress
	tryInterval   = time.Second
	maxRetryAfter = 5 * time.Minute
	dialTimeout   = 30 * time.Second
)

// keepAlive ends a connection whose other end is gone after a minute: a NAT that has forgotten it
// would otherwise hold up a download for progressTimeout.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}

// registry is a source: the mirrors of a host and the host itself, for one pull.
type registry struct {
	store *Store
	ends  []*endpoint // used for content
	tags  []*endpoint // used to resolve tags
	// slots limits concurrent downloads of blobs to pullJobs. Downloads of documents,
	// such as manifests, need no slot.
	slots chan struct{}

	mu  sync.Mutex
	bad map[digest]int // number of endpoints that sent wrong bytes; guarded by mu
}

// endpoint is a server with one of its repositories.
type endpoint struct {
	repo name.Repository
	root string // of the registry API
	// namespace is the registry whose content a mirror is asked for, and "" for the registry itself.
	namespace string
	auth      authn.Authenticator
	// plain reports that the server has no TLS: HTTP is allowed, and sign found no HTTPS.
	plain bool
	// http is the transport without credentials. signed is based on it, and requests to token
	// servers use it.
	http http.RoundTripper

	// lock guards signed. It is a channel, so that the wait for another request's token ends with
	// a context.
	lock   chan struct{}
	signed http.RoundTripper // with credentials, once the server has asked for them
}

// newRegistry returns the source for one pull of ref. It does not connect yet. Each pull has its
// own connections and credentials, so that no pull can use the password of another pull.
func newRegistry(s *Store, ref reference.Named, auth *runtimeapi.AuthConfig) (*registry, error) {
	host := reference.Domain(ref)
	conf, err := s.reach(host)
	if err != nil {
		return nil, err
	}
	own, err := credentials(auth, host)
	if err != nil {
		return nil, err
	}
	r := &registry{store: s, slots: make(chan struct{}, pullJobs), bad: map[digest]int{}}
	for _, m := range conf.Mirrors {
		// Never the credentials of the pull: they are for the registry and not for its mirrors.
		a := authn.Anonymous
		switch mhost, _, _ := strings.Cut(m.Host, "/"); {
		case m.Username != "" || m.Password != "":
			a = &authn.Basic{Username: m.Username, Password: m.Password}
		case sameHost(mhost, host):
			a = own
		}
		if err := r.add(ref, m.Host, m.Endpoint, a); err != nil {
			return nil, err
		}
	}
	// The registry itself is the last resort, after all mirrors.
	if err := r.add(ref, cmp.Or(conf.Server, host), conf.Endpoint, own); err != nil {
		return nil, err
	}
	if len(r.ends) == 0 {
		return nil, fmt.Errorf("%w: no endpoint of %s has the capability pull", errInvalid, host)
	}
	return r, nil
}

// add appends a server for the repository of ref, optionally with a path that precedes repositories.
func (r *registry) add(ref reference.Named, server string, conf Endpoint, auth authn.Authenticator) error {
	if conf.Lacks == Tags|Content {
		return nil
	}
	host, before, _ := strings.Cut(server, "/")
	e, err := r.store.endpoint(host, strings.TrimPrefix(before+"/"+reference.Path(ref), "/"), conf, auth)
	if err != nil {
		return err
	}
	// A mirror of several registries knows by this which one is meant, as from containerd.
	if registry := reference.Domain(ref); !sameHost(host, registry) {
		e.namespace = registry
	}
	if conf.Lacks&Content == 0 {
		r.ends = append(r.ends, e)
	}
	if conf.Lacks&Tags == 0 {
		r.tags = append(r.tags, e)
	}
	return nil
}

// credentials returns the credentials of a pull. Those for another host are not used.
func credentials(a *runtimeapi.AuthConfig, host string) (authn.Authenticator, error) {
	if a == nil {
		return authn.Anonymous, nil
	}
	// The kubelet selects credentials by the image's name; other clients may send any.
	if addr := a.GetServerAddress(); addr != "" && !sameHost(addr, host) {
		return authn.Anonymous, nil
	}
	// The library distinguishes the kinds: it sends a registry token unchanged, and exchanges an
	// identity token at the token server.
	c := authn.AuthConfig{Username: a.GetUsername(), Password: a.GetPassword(), IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken()}
	// The format of Docker's config.json. Some credential helpers pad it with NULs.
	if a.GetAuth() != "" && c.Username == "" {
		b, err := base64.StdEncoding.DecodeString(a.GetAuth())
		user, password, ok := strings.Cut(strings.TrimRight(string(b), "\x00"), ":")
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: auth.auth is not the base64 of user:password", errInvalid)
		}
		c.Username, c.Password = user, password
	}
	if c == (authn.AuthConfig{}) {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(c), nil
}

// sameHost reports whether an address, which may be a URL, has the registry's host.
func sameHost(addr, host string) bool {
	if !strings.Contains(addr, "://") {
		addr = "https://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil {
		return false
	}
	// Docker Hub has three host names for historical reasons.
	norm := func(h string) string {
		h = strings.ToLower(strings.TrimSuffix(h, ":443"))
		if h == "index.docker.io" || h == "registry-1.docker.io" {
			return "docker.io"
		}
		return h
	}
	return norm(u.Host) == norm(host)
}

// endpoint returns a server with the repository path; a mirror's own path is put before it.
func (s *Store) endpoint(host, path string, conf Endpoint, auth authn.Authenticator) (*endpoint, error) {
	// Strict: no default registry or namespace is added.
	opts := []name.Option{name.StrictValidation}
	if conf.PlainHTTP {
		opts = append(opts, name.Insecure)
	}
	repo, err := name.NewRepository(host+"/"+path, opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: repository %s on %s: %w", errInvalid, shown(path), shown(host), err)
	}
	rt, err := s.dialer(conf)
	if err != nil {
		return nil, err
	}
	// The library gets only the guarded transport, also for token servers.
	root := strings.TrimSuffix(cmp.Or(conf.Root, "/v2"), "/")
	return &endpoint{
		repo: repo, root: root, plain: conf.PlainHTTP, auth: auth, lock: make(chan struct{}, 1),
		http: &guard{next: rt, host: repo.RegistryStr(), plain: conf.PlainHTTP, root: root, header: conf.Header},
	}, nil
}

// dialer returns the transport for one server. Its timeouts are for connecting; watch has the
// timeouts for the rest.
func (s *Store) dialer(conf Endpoint) (http.RoundTripper, error) {
	if s.cfg.transport != nil {
		return s.cfg.transport(conf), nil
	}
	t := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: cmp.Or(conf.DialTimeout, dialTimeout), KeepAliveConfig: keepAlive}).DialContext, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: pullJobs, IdleConnTimeout: dialTimeout, MaxResponseHeaderBytes: maxHeader,
		// Transparent decompression would change bytes and length.
		DisableCompression: true, // the digest is that of the compressed bytes
	}
	t.TLSClientConfig = &tls.Config{Certificates: conf.Certificates, InsecureSkipVerify: conf.SkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // as configured
	if len(conf.CA) > 0 {
		// In addition to the system's, since answers may redirect to another server's storage.
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("authorities of the system: %w", err)
		}
		if !pool.AppendCertsFromPEM(conf.CA) {
			return nil, fmt.Errorf("%w: Endpoint.CA has no certificate in PEM", errInvalid)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// guard is a transport that sends nothing without TLS, except to a host configured for it, and
// limits the size of answers other than blobs.
type guard struct {
	next   http.RoundTripper
	host   string
	plain  bool
	root   string      // of the host's API
	header http.Header // only for this host
}

// blobKey marks the context of a request for a blob, whose size is limited by the manifest.
type blobKey struct{}

// RoundTrip implements http.RoundTripper. Redirects and token servers use it as well.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	// Plain HTTP only to the configured host, and not after redirects or for token servers
	// elsewhere.
	if r.URL.Scheme != "https" && !(g.plain && r.URL.Host == g.host) {
		return nil, fmt.Errorf("%s://%s is not HTTPS, and PlainHTTP is not configured for it", r.URL.Scheme, r.URL.Host)
	}
	resp, err := g.next.RoundTrip(g.toHost(r))
	if err == nil && r.Context().Value(blobKey{}) == nil {
		resp.Body = &limitedBody{bounded{r: resp.Body, left: maxTalk, what: "answer"}, resp.Body}
	}
	return resp, err
}

// toHost returns the request to send: with the host's headers if it is for the host, and with the
// path of the host's API for the library's first request.
func (g *guard) toHost(r *http.Request) *http.Request {
	const first = "/v2/"
	if r.URL.Host != g.host {
		return r
	}
	r = r.Clone(r.Context())
	if r.URL.Path == first {
		r.URL.Path = g.root + "/"
	}
	for name, values := range g.header {
		if r.Header.Get(name) == "" {
			r.Header[name] = values
		}
	}
	return r
}

// idleCloser is an optional interface of transports in net/http.
type idleCloser interface{ CloseIdleConnections() }

// CloseIdleConnections implements idleCloser, which http.Client uses.
func (g *guard) CloseIdleConnections() {
	if c, ok := g.next.(idleCloser); ok {
		c.CloseIdleConnections()
	}
}

// limitedBody ends a body with an errLimit, and closes the original body.
type limitedBody struct {
	bounded
	io.Closer
}

// do sends a request without credentials, and again with credentials if the server asks for them.
// The answer to the first request says which kind of credentials (OCI distribution specification,
// "Authentication"). The kind may depend on the request.
func (e *endpoint) do(ctx context.Context, req *http.Request) (*http.Response, error) {
	if err := take(ctx, e.lock); err != nil {
		return nil, err
	}
	rt := e.signed
	<-e.lock
	if rt != nil {
		return (&http.Client{Transport: rt}).Do(req)
	}
	resp, err := (&http.Client{Transport: transport.NewUserAgent(e.http, "")}).Do(req)
	if err != nil || !e.asksForMore(resp) {
		return resp, err
	}
	_ = resp.Body.Close()
	if rt, err = e.sign(ctx, resp); err != nil {
		return nil, err
	}
	return (&http.Client{Transport: rt}).Do(req.Clone(ctx))
}

// asksForMore reports whether the server may answer differently if the request is repeated
// with credentials: some servers hide content that is not public. It is false for a server
// that was reached by a redirect, which does not get credentials.
func (e *endpoint) asksForMore(resp *http.Response) bool {
	if resp.Request.URL.Host != e.repo.RegistryStr() {
		return false
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden, http.StatusNotFound:
		return e.auth != authn.Anonymous
	}
	return false
}

// sign returns a transport with credentials of the kind that the answer asks for. A failure is
// not stored: the next request tries again.
func (e *endpoint) sign(ctx context.Context, refused *http.Response) (http.RoundTripper, error) {
	if err := take(ctx, e.lock); err != nil {
		return nil, err
	}
	defer func() { <-e.lock }()
	if e.signed == nil {
		if e.plain {
			// The library tries HTTPS first, and HTTP only if that is allowed.
			found, err := transport.Ping(ctx, e.repo.Registry, e.http)
			if err != nil {
				return nil, err
			}
			e.plain = found.Insecure
		}
		// Only the pull scope: a leaked token cannot push.
		rt, err := transport.NewWithContext(ctx, e.repo.Registry, e.auth, &challenged{e.http, refused}, []string{e.repo.Scope(transport.PullScope)})
		if err != nil {
			return nil, err
		}
		e.signed = rt
	}
	return e.signed, nil
}

// challenged is a transport for the library's request to /v2/. From the answer, the library finds
// out which kind of credentials the server wants. It returns the server's earlier answer instead
// of sending that request.
type challenged struct {
	http.RoundTripper
	refused *http.Response
}

// RoundTrip implements http.RoundTripper.
func (c *challenged) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.refused.StatusCode != http.StatusUnauthorized || r.URL.Path != "/v2/" {
		return c.RoundTripper.RoundTrip(r)
	}
	return &http.Response{StatusCode: c.refused.StatusCode, Header: c.refused.Header, Body: http.NoBody, Request: c.refused.Request}, nil
}

// get requests a document or blob of the repository. A status other than 200 and 206 is an error.
// Reading the body fails if no byte arrives for the time limit of the watch.
func (e *endpoint) get(ctx context.Context, w *watch, kind, ref string, header http.Header) (*http.Response, error) {
	// Time that the caller spent elsewhere does not count.
	w.seen()
	scheme := "https"
	if e.plain {
		scheme = "http"
	}
	u := url.URL{Scheme: scheme, Host: e.repo.RegistryStr(), Path: e.root + "/" + e.repo.RepositoryStr() + "/" + kind + "/" + ref}
	if e.namespace != "" {
		u.RawQuery = url.Values{"ns": {e.namespace}}.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	// Set directly: the keys are in canonical form already.
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := e.do(ctx, req)
	if err != nil {
		return nil, e.explain(ctx, err)
	}
	// 206 is the status for a range request; the caller knows whether it was one.
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer func() { _ = resp.Body.Close() }()
		return nil, e.refused(resp)
	}
	return resp, nil
}

// statusError is an answer with a status other than success.
type statusError struct {
	host  string
	code  int
	after time.Duration // time to wait; -1 if not given
}

// Error does not contain the body of the answer, which is not trusted.
func (s *statusError) Error() string {
	return fmt.Sprintf("%s answers %d %s", s.host, s.code, http.StatusText(s.code))
}

// Unwrap returns the kind of error, which coded converts to a gRPC code.
func (s *statusError) Unwrap() error {
	switch s.code {
	case http.StatusNotFound:
		return errNotFound
	// Some registries answer 401 also for repositories that do not exist.
	case http.StatusUnauthorized, http.StatusForbidden:
		return errDenied
	}
	return errUnavailable
}

// again reports whether a later try may succeed.
func (s *statusError) again() bool {
	return s.code == http.StatusTooManyRequests || s.code == http.StatusRequestTimeout || s.code >= 500
}

// refused returns the error for an answer with a status other than success.
func (e *endpoint) refused(resp *http.Response) error {
	return &statusError{e.repo.RegistryStr(), resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), time.Now())}
}

// retryAfter parses the Retry-After header, which has seconds or a date (RFC 9110, section
// 10.2.3). It returns -1 if the header is missing or malformed. It returns no other negative
// value.
func retryAfter(v string, now time.Time) time.Duration {
	// 31 bits are 68 years in seconds, so that the conversion to a Duration cannot overflow.
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return -1
}

// explain returns the error for a failed request. It leaves out texts that may contain secrets:
// URLs of storage after redirects, and answers of token servers.
func (e *endpoint) explain(ctx context.Context, err error) error {
	// The context has ended, so its cause is the reason.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var terr *transport.Error
	if errors.As(err, &terr) {
		return &statusError{e.repo.RegistryStr(), terr.StatusCode, -1}
	}
	var uerr *url.Error
	// The URL is removed: signed URLs of object stores are credentials.
	if errors.As(err, &uerr) {
		err = uerr.Err
	}
	kind := errUnavailable
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		kind = errNotConnected
	}
	text := err.Error()
	text, _, _ = strings.Cut(text, "\n") // the rest is a token server's answer
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Errorf("%w: %s: %s", kind, e.repo.RegistryStr(), text)
}

// never is the wait before a try that would be useless.
const never = math.MaxInt64

// waitAfter returns how long to wait before another try after err: as long as the server asked for,
// -1 if it did not say, or never. broken tells whether to try again after a broken connection.
func waitAfter(err error, broken bool) time.Duration {
	var st *statusError
	switch {
	case errors.As(err, &st):
		// 404 and 403 do not change within a second. If a server asks for more than
		// maxRetryAfter, there is no further try here: kubelets try a pull again within five
		// minutes anyway.
		if st.again() && st.after <= maxRetryAfter {
			return st.after // 0 is valid
		}
	case broken && (errors.Is(err, errUnavailable) || errors.Is(err, errNoProgress)):
		return -1
	}
	return never
}

// each asks one endpoint after the other until one succeeds. If all fail and another try may help,
// it waits and asks all of them again, up to maxTries times in a row without progress: received
// returns how many bytes of a blob are on the disk. received is nil for a document, which is not
// requested again after a broken connection. Endpoints that could not be connected to lately are
// asked last. The error is that of the last endpoint in ends, which is the registry itself, followed
// by the errors of the mirrors.
func (r *registry) each(ctx context.Context, ends []*endpoint, received func() int64, ask func(*endpoint) error) error {
	isBlob := received != nil
	if !isBlob {
		received = func() int64 { return 0 }
	}
	back := &retry.Backoff{First: tryInterval, Max: 30 * time.Second}
	for tries := 1; ; tries++ {
		before, wait := received(), time.Duration(never)
		var err error
		var mirrors []string
		for _, e := range r.store.absent.last(ends) {
			failure := whileProgress(ctx, received, func() error { return ask(e) })
			if failure == nil {
				return nil
			}
			// No other endpoint helps against a full disk.
			if ctx.Err() != nil || errors.Is(failure, errFull) || isErrno(failure) {
				return failure
			}
			if errors.Is(failure, errNotConnected) {
				r.store.absent.add(e.repo.RegistryStr())
			}
			wait = min(wait, waitAfter(failure, isBlob))
			if e == ends[len(ends)-1] {
				err = failure
			} else {
				mirrors = append(mirrors, failure.Error())
			}
		}
		// The failures of mirrors explain why the registry was asked.
		if len(mirrors) > 0 {
			err = fmt.Errorf("%w (mirrors: %s)", err, strings.Join(mirrors, "; "))
		}
		// So a large layer can be downloaded even if the connection breaks every few minutes.
		if received() > before {
			tries = 1
			back.Reset()
		}
		if wait == never || tries == maxTries {
			return err
		}
		if wait < 0 {
			wait = back.Next()
		}
		// Returning the error now is better than a timeout later.
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err // the caller would be gone
		}
		if !retry.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// whileProgress calls ask again as long as the connection breaks after bytes have been received: the
// same endpoint can most likely continue. It returns the error of the last call.
func whileProgress(ctx context.Context, received func() int64, ask func() error) error {
	for {
		begin, before := time.Now(), received()
		err := ask()
		if err == nil || received() == before || waitAfter(err, true) >= 0 {
			return err
		}
		if !retry.Sleep(ctx, tryInterval-time.Since(begin)) {
			return context.Cause(ctx)
		}
	}
}

// acceptManifests is sent with each request for a manifest: without it some registries convert it
// to the oldest format, which has another digest.
var acceptManifests = http.Header{"Accept": {strings.Join([]string{ociIndex, dockerIndex, ociManifest, dockerManifest}, ", ")}}

// endsFor returns the endpoints for a tag or digest.
func (r *registry) endsFor(ref string) ([]*endpoint, error) {
	if digest(ref).check() == nil {
		return r.ends, nil
	}
	if len(r.tags) == 0 {
		return nil, fmt.Errorf("%w: no endpoint of the registry has the capability resolve, for tag %s", errInvalid, shown(ref))
	}
	return r.tags, nil
}

// manifest implements source. If the bytes of a mirror do not match the digest, the next
// endpoint is asked.
func (r *registry) manifest(ctx context.Context, ref string) (b []byte, mediaType string, err error) {
	ends, err := r.endsFor(ref)
	if err != nil {
		return nil, "", err
	}
	err = r.each(ctx, ends, nil, func(e *endpoint) error {
		b, mediaType, err = e.document(ctx, progressTimeout, "manifests", ref, acceptManifests, maxManifest)
		if d := digest(ref); err == nil && d.check() == nil {
			err = checkBytes(b, d)
		}
		return err
	})
	return b, mediaType, err
}

// config implements source. Configurations are small, so they are read into memory.
func (r *registry) config(ctx context.Context, d descriptor) (b []byte, err error) {
	err = r.each(ctx, r.ends, nil, func(e *endpoint) error {
		b, _, err = e.document(ctx, progressTimeout, "blobs", string(d.Digest), nil, maxConfig)
		if err == nil {
			err = checkBytes(b, d.Digest)
		}
		return err
	})
	return b, err
}

// document reads a document for a Verifier. The list of referrers changes, so it comes from the
// endpoints for tags.
func (r *registry) document(ctx context.Context, kind, ref string, limit int64) (b []byte, err error) {
	const referrers, blobs = "referrers", "blobs"
	at, accept := ref, acceptManifests
	switch kind {
	case referrers:
		at = ""
	case blobs:
		accept = nil
	}
	ends, err := r.endsFor(at)
	if err != nil {
		return nil, err
	}
	err = r.each(ctx, ends, nil, func(e *endpoint) error {
		b, _, err = e.document(ctx, progressTimeout, kind, ref, accept, limit)
		if d := digest(at); err == nil && d.check() == nil {
			err = checkBytes(b, d)
		}
		return err
	})
	// Registries without referrers answer with one of these, too.
	var st *statusError
	without := kind == referrers && errors.As(err, &st) && slices.Contains([]int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable}, st.code)
	if without || errors.Is(err, errNotFound) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return b, err
}

// document requests a small document. If the document has more than limit bytes, the error is
// errLimit.
func (e *endpoint) document(ctx context.Context, timeout time.Duration, kind, ref string, header http.Header, limit int64) (b []byte, mediaType string, err error) {
	ctx, w := newWatch(ctx, timeout)
	defer w.stop()
	resp, err := e.get(ctx, w, kind, ref, header)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	// One byte more than allowed shows that the document is too large.
	b, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, "", e.explain(ctx, err)
	case int64(len(b)) > limit:
		return nil, "", fmt.Errorf("%w: %s of %s has more than %d bytes", errLimit, kind, e.repo.RegistryStr(), limit)
	// No range was requested: the bytes are not the document.
	case resp.StatusCode == http.StatusPartialContent:
		return nil, "", fmt.Errorf("%w: %s answered with a part of the %s", errUnavailable, e.repo.RegistryStr(), kind)
	}
	return b, resp.Header.Get("Content-Type"), nil
}

// watch cancels a context when no data arrives for too long. It limits the time without data, not
// the total time: a large layer may take hours on a slow line.
type watch struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// newWatch starts the timer and returns the context that the watch cancels. The caller must call
// stop.
func newWatch(ctx context.Context, timeout time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{timeout: timeout, cancel: cancel}
	w.timer = time.AfterFunc(timeout, func() {
		cancel(fmt.Errorf("%w: none in %v", errNoProgress, timeout))
	})
	return ctx, w
}

// seen restarts the timer.
func (w *watch) seen() { w.timer.Reset(w.timeout) }

// pause stops the timer until the next call of seen.
func (w *watch) pause() { w.timer.Stop() }

// stop stops the timer and cancels the context, and with it every pending read.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// trusted returns the endpoints that may still be asked for a blob. It omits those that sent
// wrong bytes, except the last endpoint, which is the registry itself.
func (r *registry) trusted(d digest) []*endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends[min(r.bad[d], len(r.ends)-1):]
}

// distrust implements source. It excludes the first endpoint that is not excluded yet.
func (r *registry) distrust(d descriptor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad[d.Digest]++
	return r.bad[d.Digest] < len(r.ends)
}
