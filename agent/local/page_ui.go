package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	// tailLines and maxLog are what a page shows of a log, and followTime how long one is
	// followed.
	tailLines  = 500
	maxLog     = 1 << 20
	followTime = 8 * time.Hour
	// pageReaderPatience is how long a browser may leave an answer unread.
	pageReaderPatience = time.Minute
)

//go:embed page.html
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
	p.mux.HandleFunc("GET /{$}", p.page(p.overview))
	p.mux.HandleFunc("GET /pods/{namespace}/{name}", p.page(p.pod))
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

// page answers with a whole page, or with ?part with what changes of it.
func (p *Page) page(content func(context.Context, *http.Request) (title string, b *builder, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		default:
			http.Error(w, "too many pages are being made", http.StatusTooManyRequests)
			return
		}
		title, b, err := content(r.Context(), r)
		if err != nil {
			code := http.StatusBadGateway
			if errors.Is(err, ErrNotFound) {
				code = http.StatusNotFound
			}
			http.Error(w, err.Error(), code)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if r.URL.Query().Has("part") {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
			_, _ = io.WriteString(w, b.String())
			return
		}
		nonce := rand.Text()
		w.Header().Set("Content-Security-Policy", fmt.Sprintf(
			"default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", nonce, nonce))
		frame, err := files.ReadFile("page.html")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = strings.NewReplacer("NONCE", nonce, "TITLE", escape(title), "<!--content-->", b.String()).WriteString(w, string(frame))
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

// tail is the last part of a container's log, for a page.
func (p *Page) tail(ctx context.Context, namespace, name, container string) string {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	log, err := p.cfg.Agent.Log(ctx, namespace, name, LogOptions{Container: container, Tail: tailLines})
	if err != nil {
		return "(" + err.Error() + ")"
	}
	defer func() { _ = log.Close() }()
	b, err := io.ReadAll(io.LimitReader(log, maxLog))
	if err != nil && len(b) == 0 {
		return "(" + err.Error() + ")"
	}
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}
