package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// PageConfig holds what a Page needs.
type PageConfig struct {
	Agent PageAgent   // required
	Log   *zap.Logger // silent
}

// Page serves pages about a node. Its methods may be called from any goroutine.
type Page struct {
	cfg     PageConfig
	mux     *http.ServeMux
	history history
	slots   chan struct{} // pages that are being made
	logs    chan struct{} // logs that are being followed
}

const (
	maxPages = 8
	maxLogs  = 32
	// followTime is how long a log is followed.
	followTime = 8 * time.Hour
	// pageReaderPatience is how long a browser may leave an answer unread.
	pageReaderPatience = time.Minute
)

//go:embed page.html page_overview.html page_pod.html
var files embed.FS

// NewPage checks cfg and returns a Page.
func NewPage(cfg PageConfig) (*Page, error) {
	if cfg.Agent == nil {
		return nil, errors.New("page: PageConfig.Agent is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	p := &Page{cfg: cfg, mux: http.NewServeMux(), slots: make(chan struct{}, maxPages), logs: make(chan struct{}, maxLogs)}
	for _, c := range []struct {
		pattern, file string
		content       contentFunc
	}{
		{"GET /{$}", "page_overview.html", p.overview},
		{"GET /pods/{namespace}/{name}", "page_pod.html", p.pod},
	} {
		t, err := template.New("page.html").Funcs(functions).ParseFS(files, "page.html", c.file)
		if err != nil {
			return nil, fmt.Errorf("page: %w", err)
		}
		p.mux.HandleFunc(c.pattern, p.page(t, c.content))
	}
	p.mux.HandleFunc("GET /logs/{namespace}/{name}/{container}", p.log)
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageReaderPatience)) // not every writer has one
	p.mux.ServeHTTP(w, r)
}

// frame is what page.html shows.
type frame struct {
	Title, Nonce string
	Content      any
}

// contentFunc returns what a page shows, and its title.
type contentFunc func(context.Context, *http.Request) (title string, content any, err error)

// page answers with a whole page, or with ?part with what changes of it.
func (p *Page) page(t *template.Template, content contentFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		default:
			http.Error(w, "too many pages are being made", http.StatusTooManyRequests)
			return
		}
		title, data, err := content(r.Context(), r)
		if err != nil {
			code := http.StatusBadGateway
			if errors.Is(err, ErrNotFound) {
				code = http.StatusNotFound
			}
			http.Error(w, err.Error(), code)
			return
		}
		var b bytes.Buffer
		policy := "default-src 'none'"
		if r.URL.Query().Has("part") {
			err = t.ExecuteTemplate(&b, "content", data)
		} else {
			nonce := rand.Text()
			policy = fmt.Sprintf("default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", nonce, nonce)
			err = t.Execute(&b, frame{title, nonce, data})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = b.WriteTo(w)
	}
}

// log answers with the last part of a container's log, and with ?follow goes on.
func (p *Page) log(w http.ResponseWriter, r *http.Request) {
	select {
	case p.logs <- struct{}{}:
		defer func() { <-p.logs }()
	default:
		http.Error(w, "too many logs are being followed", http.StatusTooManyRequests)
		return
	}
	q := r.URL.Query()
	o := LogOptions{Container: r.PathValue("container"), Follow: q.Has("follow"), Previous: q.Has("previous"), Tail: tailLines}
	if s := q.Get("tail"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > 100_000 {
			http.Error(w, fmt.Sprintf("tail=%.40q: want a number from 0 to 100000", s), http.StatusBadRequest)
			return
		}
		o.Tail = n
	}
	ctx, cancel := context.WithTimeout(r.Context(), followTime)
	defer cancel()
	log, err := p.cfg.Agent.Log(ctx, r.PathValue("namespace"), r.PathValue("name"), o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = log.Close() }()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rc := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := log.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(pageReaderPatience))
			if _, werr := w.Write(buf[:n]); werr != nil {
				return
			}
			_ = rc.Flush()
		}
		if err != nil {
			return
		}
	}
}
