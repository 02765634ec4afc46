package podmgr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// httpTimeout limits one request (the kubelet's value).
const httpTimeout = 10 * time.Second

// maxRedirects limits the redirects of one request (the limit of Go's client).
const maxRedirects = 10

// HTTPConfig holds what a URL source needs. URL and NodeName are required; the
// zero value of every other field means the default named beside it.
type HTTPConfig struct {
	// URL may contain credentials, as its user or in its query. They appear in no log or error.
	URL string
	// Header is sent with each request to the URL's host, and not to hosts of redirects.
	Header   http.Header
	NodeName string
	Interval time.Duration // the default is 20 s, as the kubelet's httpCheckFrequency
	// Client makes single requests; the source handles redirects and the timeout.
	Client http.RoundTripper // if nil, the default transport of net/http is used

	Log *zap.Logger // if nil, nothing is logged
}

// web is the source "http". Run's goroutine owns it.
type web struct {
	cfg    HTTPConfig
	shown  string // the URL, for people to read
	client http.Client
	body   []byte // the last body that was received
	// good is in effect: objects of the last body, and older objects in place of broken ones.
	good   decoded
	failed string // the last logged error
}

// HTTP returns the source named "http". It reads manifests from a URL, in any form that a file
// may have. It makes no request before Run. No error contains the URL's credentials.
func HTTP(cfg HTTPConfig) (Source, error) {
	var errs []error
	// The parser's error quotes the URL, so it is left out.
	if u, err := url.Parse(cfg.URL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("HTTPConfig.URL is %s; want an http or https URL", shownURL(cfg.URL)))
	}
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("HTTPConfig.NodeName is required"))
	}
	if cfg.Interval < 0 {
		errs = append(errs, fmt.Errorf("HTTPConfig.Interval is %v; want a positive duration", cfg.Interval))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podmgr: %w", err)
	}
	if cfg.Interval == 0 {
		cfg.Interval = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	w := &web{cfg: cfg, shown: shownURL(cfg.URL)}
	w.client = http.Client{Timeout: httpTimeout, Transport: cfg.Client, CheckRedirect: w.redirect}
	return w, nil
}

// redirect refuses a redirect from https to http and too many redirects, and removes cfg.Header
// for other hosts. http.Client calls it before each redirect; via has the previous requests,
// oldest first.
func (w *web) redirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fmt.Errorf("redirected to scheme %.20q; want http or https", req.URL.Scheme)
	case req.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https":
		return errors.New("redirected from https to http")
	}
	// The query of the URL before is part of it.
	req.Header.Del("Referer")
	// All hosts on the way, this one included. The slice's
	// capacity is cut, so that append does not write into via.
	for _, before := range append(via[1:len(via):len(via)], req) {
		if sameHost(via[0].URL, before.URL) {
			continue
		}
		// Not sent again after a redirect to another host, even if a later one
		// leads back.
		for k := range w.cfg.Header {
			req.Header.Del(k)
			delete(req.Header, k) // also one that is not in canonical form
		}
		req.Header.Del("Authorization")
		break
	}
	return nil
}

// sameHost reports whether a and b have the same host, ignoring case, and the same port. Port 80
// with http equals port 443 with https.
func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		// The usual port of a scheme is the same as none.
		if p := u.Port(); p != "" && (u.Scheme != "http" || p != "80") && (u.Scheme != "https" || p != "443") {
			return p
		}
		return ""
	}
	return strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// Name returns "http", the kubelet's name for the source.
func (w *web) Name() string { return "http" }

// Run requests the URL at once and every Interval, until ctx ends. It returns no error: failures
// are logged when they change.
func (w *web) Run(ctx context.Context, deliver func(Snapshot)) error {
	t := time.NewTicker(w.cfg.Interval)
	defer t.Stop()
	for {
		body, err := w.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			// After a failure, the pods stay as they are.
			if err.Error() != w.failed {
				w.cfg.Log.Warn("failed to fetch manifests", zap.String("url", w.shown), zap.Error(err))
				w.failed = err.Error()
			}
		default:
			if w.failed != "" {
				w.cfg.Log.Info("manifests can be fetched again", zap.String("url", w.shown))
				w.failed = ""
			}
			// A first answer without content is delivered as well:
			// the source then wants nothing, and is ready.
			if w.body == nil || !slices.Equal(body, w.body) {
				// Broken bodies are remembered, too: their problems are delivered once.
				w.body = body
				deliver(w.read(body))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// fetch returns the body, which is never nil and has at most maxManifest bytes. It blocks for up
// to httpTimeout. No error quotes the URL.
func (w *web) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.cfg.URL, nil)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed")
	}
	for k, v := range w.cfg.Header {
		req.Header[k] = v
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, plainError(err)
	}
	defer func() { _ = resp.Body.Close() }()
	// As in the kubelet, any other status is a failure: nothing changes then.
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered with status %d", resp.StatusCode)
	}
	// One byte more shows that the body is larger than allowed.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxManifest:
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxManifest)
	}
	// Not nil, which Run has for "no answer yet"; and
	// without the spare capacity that ReadAll leaves.
	return append([]byte{}, body...), nil
}

// plainError returns why a request failed, without the URLs that http.Client adds to its errors.
func plainError(err error) error {
	for {
		var u *url.Error
		if !errors.As(err, &u) {
			break
		}
		err = u.Err
	}
	text := err.Error()
	if strings.Contains(text, "Location header") { // the client quotes it
		text = "redirected to an invalid URL"
	}
	return errors.New(inOneLine(text))
}

// read decodes a body into a Snapshot. Broken objects are replaced by their last good version.
func (w *web) read(body []byte) Snapshot {
	// The URL with its query is part of the pods' UIDs; problems show it without.
	m := &manifest{good: decode(body, origin{nodeName: w.cfg.NodeName, file: w.cfg.URL, url: true})}
	m.problems = m.good.problems
	if len(m.problems) > 0 {
		// Older versions are in memory alone: after a restart the server is asked again.
		m.keep(&manifest{good: w.good})
	}
	w.good = m.good
	s := Snapshot{
		ConfigMaps: m.good.configMaps, Secrets: m.good.secrets, Claims: m.good.claims, Volumes: m.good.volumes,
		ResourceClaims: m.good.resources, Problems: m.problems,
	}
	// The Manager annotates the pods that it is handed, and keep may need these again.
	for _, p := range m.good.pods {
		s.Pods = append(s.Pods, p.DeepCopy())
	}
	for i := range s.Problems {
		s.Problems[i].Source = w.Name()
	}
	return s
}

// shownURL returns a URL without its user, query and fragment, which may be credentials.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "a URL that cannot be parsed"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return shown.String()
}
