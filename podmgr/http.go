package podmgr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.uber.org/zap"
)

// httpTimeout bounds one request (the kubelet's value).
const httpTimeout = 10 * time.Second

// HTTPConfig holds what a URL source needs. URL and NodeName are required; the
// zero value of every other field means the default named beside it.
type HTTPConfig struct {
	URL      string
	Header   http.Header // none
	NodeName string
	Interval time.Duration     // 20s, the kubelet's httpCheckFrequency
	Client   http.RoundTripper // the default transport

	Log *zap.Logger // silent
}

// web is the source "http".
type web struct {
	cfg    HTTPConfig
	client http.Client
	body   []byte // the last one
	good   decoded
	failed string // what was logged last
}

// HTTP returns the source named "http", which asks a URL for manifests: a
// Pod, a PodList, or whatever a file could hold.
func HTTP(cfg HTTPConfig) (Source, error) {
	var errs []error
	if u, err := url.Parse(cfg.URL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("HTTPConfig.URL is %q; want an http or https URL", cfg.URL))
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
	return &web{cfg: cfg, client: http.Client{Timeout: httpTimeout, Transport: cfg.Client}}, nil
}

// Name is "http", the kubelet's word.
func (w *web) Name() string { return "http" }

// Run asks now and every Interval.
func (w *web) Run(ctx context.Context, deliver func(Snapshot)) error {
	t := time.NewTicker(w.cfg.Interval)
	defer t.Stop()
	for {
		body, err := w.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			// Nothing is known, so nothing changes.
			if err.Error() != w.failed {
				w.cfg.Log.Warn("manifests cannot be fetched", zap.String("url", w.cfg.URL), zap.Error(err))
				w.failed = err.Error()
			}
		default:
			if w.failed != "" {
				w.cfg.Log.Info("manifests can be fetched again", zap.String("url", w.cfg.URL))
				w.failed = ""
			}
			if w.body == nil || !slices.Equal(body, w.body) {
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

func (w *web) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range w.cfg.Header {
		req.Header[k] = v
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxManifest:
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxManifest)
	}
	return append([]byte{}, body...), nil
}

// read turns a body into what is wanted. What is broken leaves the last good
// version in effect.
func (w *web) read(body []byte) Snapshot {
	m := &manifest{good: decode(body, origin{nodeName: w.cfg.NodeName, file: w.cfg.URL, url: true})}
	m.problems = m.good.problems
	if len(m.problems) > 0 {
		m.keep(&manifest{good: w.good})
	}
	w.good = m.good
	s := Snapshot{ConfigMaps: m.good.configMaps, Secrets: m.good.secrets, Claims: m.good.claims, Volumes: m.good.volumes, Problems: m.problems}
	for _, p := range m.good.pods {
		s.Pods = append(s.Pods, p.DeepCopy())
	}
	for i := range s.Problems {
		s.Problems[i].Source = w.Name()
	}
	return s
}
