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
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/retry"
)

// Bounds of a talk with a server.
const (
	maxTalk       = 16 << 20 // bytes of an answer that is no blob
	maxHeader     = 1 << 20  // bytes of a header
	maxTries      = 5        // in a row without a byte
	maxRetryAfter = 5 * time.Minute
	dialTimeout   = 30 * time.Second
)

// registry is a source: the mirrors of a host and the host itself, for one pull.
type registry struct {
	store *Store
	ends  []*endpoint // that are asked for content
	tags  []*endpoint // that are asked what a tag leads to
	// slots bounds downloads of blobs by Config.PullJobs; documents take none.
	slots chan struct{} // for downloads

	// A channel of one token stands for a mutex.
	lock chan struct{}  // guards bad
	bad  map[digest]int // how many endpoints had wrong bytes
}

// endpoint is one server, with a repository on it.
type endpoint struct {
	repo name.Repository
	root string // of its API
	auth authn.Authenticator
	// plain says that it has no TLS: it may be asked without, and signed found none.
	plain bool
	// http is what signed is made of, and what asks token servers.
	http http.RoundTripper // without credentials

	// lock guards signed. It is a channel, so that the wait for another request's token
	// can end with a context.
	lock   chan struct{}
	signed http.RoundTripper // with them, once the server has asked for them
}

// newRegistry returns the source of one pull of ref. It talks to nobody yet. Each pull
// has its own connections and credentials, so that no pull profits from the password of
// another.
func newRegistry(s *Store, ref reference.Named, auth *runtimeapi.AuthConfig) (*registry, error) {
	host, path := reference.Domain(ref), reference.Path(ref)
	conf, err := s.reach(host)
	if err != nil {
		return nil, err
	}
	own, err := credentials(auth, host)
	if err != nil {
		return nil, err
	}
	r := &registry{store: s, slots: make(chan struct{}, s.cfg.PullJobs), lock: make(chan struct{}, 1), bad: map[digest]int{}}
	for _, m := range conf.Mirrors {
		// Never the credentials of the pull: they are for the registry and not for
		// whoever mirrors it.
		a := authn.Anonymous
		switch mhost, _, _ := strings.Cut(m.Host, "/"); {
		case m.Username != "" || m.Password != "":
			a = &authn.Basic{Username: m.Username, Password: m.Password}
		case sameHost(mhost, host):
			a = own
		}
		if err := r.add(m.Host, path, m.Endpoint, a); err != nil {
			return nil, err
		}
	}
	// The registry itself is the last resort, after all mirrors.
	if err := r.add(cmp.Or(conf.Server, host), path, conf.Endpoint, own); err != nil {
		return nil, err
	}
	if len(r.ends) == 0 {
		return nil, fmt.Errorf("%w: no server of %s may be asked for content", errInvalid, host)
	}
	return r, nil
}

// add appends a server, which may have a path that precedes repositories.
func (r *registry) add(server, path string, conf Endpoint, auth authn.Authenticator) error {
	if conf.Lacks == Tags|Content {
		return nil
	}
	host, before, _ := strings.Cut(server, "/")
	e, err := r.store.endpoint(host, strings.TrimPrefix(before+"/"+path, "/"), conf, auth)
	if err != nil {
		return err
	}
	if conf.Lacks&Content == 0 {
		r.ends = append(r.ends, e)
	}
	if conf.Lacks&Tags == 0 {
		r.tags = append(r.tags, e)
	}
	return nil
}

// credentials are those of a pull. What is meant for another host is not sent.
func credentials(a *runtimeapi.AuthConfig, host string) (authn.Authenticator, error) {
	if a == nil {
		return authn.Anonymous, nil
	}
	// The kubelet finds credentials by the image's name; other clients may send any.
	if addr := a.GetServerAddress(); addr != "" && !sameHost(addr, host) {
		return authn.Anonymous, nil
	}
	// The kinds are told apart by the library: a registry token is sent as it is, an
	// identity token is exchanged at the token server.
	c := authn.AuthConfig{Username: a.GetUsername(), Password: a.GetPassword(), IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken()}
	// The form of Docker's config.json. Some helpers pad it with NULs.
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

// sameHost reports whether an address, perhaps a URL, is of a registry's host.
func sameHost(addr, host string) bool {
	if !strings.Contains(addr, "://") {
		addr = "https://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil {
		return false
	}
	// Docker Hub has three names for historical reasons.
	norm := func(h string) string {
		h = strings.ToLower(strings.TrimSuffix(h, ":443"))
		if h == "index.docker.io" || h == "registry-1.docker.io" {
			return "docker.io"
		}
		return h
	}
	return norm(u.Host) == norm(host)
}

// endpoint returns a server with a repository on it, path, which a mirror's own path
// precedes.
func (s *Store) endpoint(host, path string, conf Endpoint, auth authn.Authenticator) (*endpoint, error) {
	// Strict: no default registry and no default namespace are put in front.
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
	// The library gets the guarded way only, for token servers as well.
	root := strings.TrimSuffix(cmp.Or(conf.Root, "/v2"), "/")
	return &endpoint{
		repo: repo, root: root, plain: conf.PlainHTTP, auth: auth, lock: make(chan struct{}, 1),
		http: &guard{next: rt, host: repo.RegistryStr(), plain: conf.PlainHTTP, root: root, header: conf.Header},
	}, nil
}

// dialer returns the transport to one server. Its timeouts are for connecting; watch is
// for what comes after.
func (s *Store) dialer(conf Endpoint) (http.RoundTripper, error) {
	if s.cfg.transport != nil {
		return s.cfg.transport(conf), nil
	}
	t := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: cmp.Or(conf.DialTimeout, dialTimeout), KeepAlive: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: s.cfg.PullJobs, IdleConnTimeout: dialTimeout, MaxResponseHeaderBytes: maxHeader,
		// A transport that unpacks what a server has packed would change bytes and
		// length.
		DisableCompression: true, // what is compressed has a digest
	}
	t.TLSClientConfig = &tls.Config{Certificates: conf.Certificates, InsecureSkipVerify: conf.SkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // as the operator says
	if len(conf.CA) > 0 {
		// Beside the system's: answers may redirect to storage of somebody else.
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

// guard sends nothing without TLS but to a host that is configured so, and
// bounds answers that are no blobs.
type guard struct {
	next   http.RoundTripper
	host   string
	plain  bool
	root   string      // of the host's API
	header http.Header // for the host alone
}

// blobKey marks the context of a request for a blob, whose size the manifest bounds.
type blobKey struct{}

// RoundTrip implements http.RoundTripper. It sees redirects and token servers as well.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	// Plain HTTP is for the configured host alone, wherever redirects and token servers
	// lead.
	if r.URL.Scheme != "https" && !(g.plain && r.URL.Host == g.host) {
		return nil, fmt.Errorf("%s://%s is not HTTPS, and PlainHTTP is not configured for it", r.URL.Scheme, r.URL.Host)
	}
	resp, err := g.next.RoundTrip(g.toHost(r))
	if err == nil && r.Context().Value(blobKey{}) == nil {
		resp.Body = &limitedBody{bounded{r: resp.Body, left: maxTalk, what: "answer"}, resp.Body}
	}
	return resp, err
}

// toHost returns a request as it is sent: with the host's headers if it is for the host, and
// the library's first question where the API is.
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

// idleCloser is net/http's optional interface of transports.
type idleCloser interface{ CloseIdleConnections() }

// CloseIdleConnections implements idleCloser, which http.Client looks for on its
// transport.
func (g *guard) CloseIdleConnections() {
	if c, ok := g.next.(idleCloser); ok {
		c.CloseIdleConnections()
	}
}

// limitedBody ends a body with an errLimit and still closes the connection's own.
type limitedBody struct {
	bounded
	io.Closer
}

// do sends a request without credentials, and again with them once the server asks for
// them: what it wants is in the challenge of the request that was refused (OCI
// distribution specification, "Authentication"), and may differ from that of others.
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

// asksForMore reports whether an answer to a request without credentials may be another
// one with them. Some servers hide what not everybody may see. Credentials are not for
// a server that the request was redirected to.
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

// sign makes the way to the server with credentials of the kind that an answer asks for. A
// failure is not kept: the next request asks again.
func (e *endpoint) sign(ctx context.Context, refused *http.Response) (http.RoundTripper, error) {
	if err := take(ctx, e.lock); err != nil {
		return nil, err
	}
	defer func() { <-e.lock }()
	if e.signed == nil {
		if e.plain {
			// The library prefers TLS, and asks without it only whom it may.
			found, err := transport.Ping(ctx, e.repo.Registry, e.http)
			if err != nil {
				return nil, err
			}
			e.plain = found.Insecure
		}
		// Pull scope alone: a token that leaks cannot push.
		rt, err := transport.NewWithContext(ctx, e.repo.Registry, e.auth, &challenged{e.http, refused}, []string{e.repo.Scope(transport.PullScope)})
		if err != nil {
			return nil, err
		}
		e.signed = rt
	}
	return e.signed, nil
}

// challenged answers the library's question which credentials the server wants, a request
// for /v2/, with what the server has said already.
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

// get asks for a document or a blob of the repository. A status other than 200
// and 206 is an error. The body ends when the watch does not see a byte for too
// long.
func (e *endpoint) get(ctx context.Context, w *watch, kind, ref string, header http.Header) (*http.Response, error) {
	// The time that the caller spent elsewhere is not the server's.
	w.seen()
	scheme := "https"
	if e.plain {
		scheme = "http"
	}
	u := url.URL{Scheme: scheme, Host: e.repo.RegistryStr(), Path: e.root + "/" + e.repo.RepositoryStr() + "/" + kind + "/" + ref}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	// Set as they are: the keys are in canonical form already.
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := e.do(ctx, req)
	if err != nil {
		return nil, e.explain(ctx, err)
	}
	// 206 is what a range request gets; whether it was one, the caller knows.
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer func() { _ = resp.Body.Close() }()
		return nil, e.refused(resp)
	}
	return resp, nil
}

// statusError is an answer that is no success.
type statusError struct {
	host  string
	code  int
	after time.Duration // until when to wait; -1 if it does not say
}

// Error leaves the body of the answer out: it is anybody's text.
func (s *statusError) Error() string {
	return fmt.Sprintf("%s answers %d %s", s.host, s.code, http.StatusText(s.code))
}

// Unwrap gives the kind, which coded turns into a gRPC code.
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

// again reports whether the same may be asked for later.
func (s *statusError) again() bool {
	return s.code == http.StatusTooManyRequests || s.code == http.StatusRequestTimeout || s.code >= 500
}

// refused makes the error of an answer.
func (e *endpoint) refused(resp *http.Response) error {
	return &statusError{e.repo.RegistryStr(), resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), time.Now())}
}

// retryAfter reads the header of that name: seconds, or a date. RFC 9110, section
// 10.2.3. It returns -1 for no such header or one that is malformed, and never another
// negative value.
func retryAfter(v string, now time.Time) time.Duration {
	// 31 bits are 68 years of seconds: no product with a second overflows.
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return -1
}

// explain returns what is wrong with a server, without what may be secret: URLs of
// storage that answers redirect to, and what token servers say.
func (e *endpoint) explain(ctx context.Context, err error) error {
	// Whatever failed did so because the context ended, and its cause is the news.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var terr *transport.Error
	if errors.As(err, &terr) {
		return &statusError{e.repo.RegistryStr(), terr.StatusCode, -1}
	}
	var uerr *url.Error
	// The URL is left behind: signed URLs of object stores are credentials.
	if errors.As(err, &uerr) {
		err = uerr.Err
	}
	text := err.Error()
	text, _, _ = strings.Cut(text, "\n") // a token server's answer follows
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Errorf("%w: %s: %s", errUnavailable, e.repo.RegistryStr(), text)
}

// pause waits as long as an error says before the next try. It returns the error
// if there is to be none.
func pause(ctx context.Context, err error, back *retry.Backoff) error {
	wait := time.Duration(-1)
	var st *statusError
	if errors.As(err, &st) {
		// 404 and 403 will be the same in a second. A server that wants more than
		// maxRetryAfter is not waited for: kubelets try a pull again within five
		// minutes anyway.
		if !st.again() || st.after > maxRetryAfter {
			return err
		}
		wait = st.after // 0 is an answer, too
	}
	if wait < 0 {
		wait = back.Next()
	}
	// The error now is worth more than a timeout later.
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return err // nobody would be there
	}
	if !retry.Sleep(ctx, wait) {
		return context.Cause(ctx)
	}
	return nil
}

// backoff returns a fresh back-off between tries at one endpoint.
func backoff() *retry.Backoff { return &retry.Backoff{First: time.Second, Max: 30 * time.Second} }

// each asks one endpoint after the other, until one has it. The error is that of
// the last, which is the registry itself, and names those before.
func (r *registry) each(ctx context.Context, ends []*endpoint, ask func(e *endpoint, last bool) error) error {
	var before []string
	var err error
	for i, e := range ends {
		// The last endpoint is told that it is: nobody can help out after it.
		if err = r.persist(ctx, func() error { return ask(e, i == len(ends)-1) }); err == nil || ctx.Err() != nil {
			return err
		}
		if i < len(ends)-1 {
			before = append(before, err.Error())
		}
	}
	// A mirror's failure explains why the registry was asked at all.
	if len(before) > 0 {
		return fmt.Errorf("%w (mirrors: %s)", err, strings.Join(before, "; "))
	}
	return err
}

// persist asks again while a server says that it is busy. Errors without a status go
// back at once: they are the business of ask.
func (r *registry) persist(ctx context.Context, ask func() error) error {
	back := backoff()
	for n := 1; ; n++ {
		err := ask()
		var st *statusError
		if err == nil || n == maxTries || !errors.As(err, &st) {
			return err
		}
		if perr := pause(ctx, err, back); perr != nil {
			return perr
		}
	}
}

// acceptManifests is sent with each request for a manifest: without it some registries
// convert to the oldest format, whose digest differs.
var acceptManifests = http.Header{"Accept": {strings.Join([]string{ociIndex, dockerIndex, ociManifest, dockerManifest}, ", ")}}

// manifest implements source. A mirror with other bytes than the digest says counts as
// one that does not have it.
func (r *registry) manifest(ctx context.Context, ref string) (b []byte, mediaType string, err error) {
	ends := r.ends
	if digest(ref).check() != nil {
		if ends = r.tags; len(ends) == 0 {
			return nil, "", fmt.Errorf("%w: no host of the registry may resolve tag %s", errInvalid, shown(ref))
		}
	}
	err = r.each(ctx, ends, func(e *endpoint, _ bool) error {
		b, mediaType, err = e.document(ctx, r.store.cfg.ProgressTimeout, "manifests", ref, acceptManifests, maxManifest)
		if d := digest(ref); err == nil && d.check() == nil {
			err = checkBytes(b, d)
		}
		return err
	})
	return b, mediaType, err
}

// config implements source. Configurations are small and are read whole, without a
// file.
func (r *registry) config(ctx context.Context, d descriptor) (b []byte, err error) {
	err = r.each(ctx, r.ends, func(e *endpoint, _ bool) error {
		b, _, err = e.document(ctx, r.store.cfg.ProgressTimeout, "blobs", string(d.Digest), nil, maxConfig)
		if err == nil {
			err = checkBytes(b, d.Digest)
		}
		return err
	})
	return b, err
}

// document gets what is small.
func (e *endpoint) document(ctx context.Context, patience time.Duration, kind, ref string, header http.Header, most int64) (b []byte, mediaType string, err error) {
	ctx, w := newWatch(ctx, patience)
	defer w.stop()
	resp, err := e.get(ctx, w, kind, ref, header)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	// One byte more than allowed shows that there is more.
	b, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, "", e.explain(ctx, err)
	case int64(len(b)) > most:
		return nil, "", fmt.Errorf("%w: %s of %s has more than %d bytes", errLimit, kind, e.repo.RegistryStr(), most)
	// Nobody asked for a part: the bytes are not the document.
	case resp.StatusCode == http.StatusPartialContent:
		return nil, "", fmt.Errorf("%w: %s answers with a part", errUnavailable, e.repo.RegistryStr())
	}
	return b, resp.Header.Get("Content-Type"), nil
}

// watch ends a context when nothing is seen for too long. It bounds the silence and not
// the whole: a large layer may take hours on a slow line.
type watch struct {
	patience time.Duration
	timer    *time.Timer
	cancel   context.CancelCauseFunc
}

// newWatch starts the clock. stop must be called, or the timer keeps the context's
// cancel until it fires.
func newWatch(ctx context.Context, patience time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{patience: patience, cancel: cancel}
	w.timer = time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("%w: none in %v", errNoProgress, patience))
	})
	return ctx, w
}

// seen starts the patience anew.
func (w *watch) seen() { w.timer.Reset(w.patience) }

// stop ends the context as well, and so every read that is still under way.
func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// trusted are the endpoints that are still asked for a blob. Those that sent wrong
// bytes are skipped, but never the last, which is the registry itself. The token is
// held for moments only, hence no context.
func (r *registry) trusted(d digest) []*endpoint {
	r.lock <- struct{}{}
	defer func() { <-r.lock }()
	return r.ends[min(r.bad[d], len(r.ends)-1):]
}

// distrust implements source. Endpoints are given up in their order.
func (r *registry) distrust(d descriptor) bool {
	r.lock <- struct{}{}
	defer func() { <-r.lock }()
	r.bad[d.Digest]++
	return r.bad[d.Digest] < len(r.ends)
}
