package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
)

// PageConfig configures a Page.
type PageConfig struct {
	Agent PageAgent // required
	// Past returns the recorded past of a pod, for its timeline. Calls do not overlap. Nil means
	// that the page shows no past.
	Past func(PastQuery) (Past, error)
	Log  *zap.Logger // silent
}

// Page serves pages about a node. Its methods may be called from any goroutine.
type Page struct {
	cfg PageConfig
	mux *http.ServeMux
	// pages has the templates of all pages. NewPage parses them: a package variable would link
	// html/template, and with it every method, into programs without a page.
	pages *template.Template
	slots chan struct{} // has a value for each page that is being created
	logs  chan struct{} // has a value for each followed log
	pasts chan struct{} // has a value while a past is read, since a past may be large

	mu   sync.Mutex
	last *answers // the last complete answers, for when the agent does not answer; nil: none yet
}

const (
	maxPages = 8
	maxLogs  = 32
	// followTime limits how long a log is followed.
	followTime = 8 * time.Hour
	// pageReaderTimeout is how long a browser may read nothing of an answer before its
	// connection is closed.
	pageReaderTimeout = time.Minute
	// pagePolicy allows a page to load only its own styles, scripts and data.
	pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

//go:embed page.html page.css page.js
var files embed.FS

// NewPage checks cfg and returns a Page.
func NewPage(cfg PageConfig) (*Page, error) {
	if cfg.Agent == nil {
		return nil, errors.New("page: PageConfig.Agent is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	t, err := template.New("page.html").Funcs(functions).ParseFS(files, "page.html")
	if err != nil {
		return nil, fmt.Errorf("parse template of the page: %w", err)
	}
	cfg.Agent = &sharedHistory{PageAgent: cfg.Agent}
	p := &Page{cfg: cfg, mux: http.NewServeMux(), pages: t, slots: make(chan struct{}, maxPages), logs: make(chan struct{}, maxLogs), pasts: make(chan struct{}, 1)}
	p.mux.HandleFunc("GET /{$}", p.page("overview", "", p.overview))
	p.mux.HandleFunc("GET /pods/{namespace}/{name}", p.page("pod", "../../", p.pod))
	p.mux.HandleFunc("GET /logs/{namespace}/{name}/{container}", p.log)
	p.mux.HandleFunc("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	p.mux.HandleFunc("GET /page.js", asset("page.js", "text/javascript; charset=utf-8"))
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageReaderTimeout)) // not every writer has one
	p.mux.ServeHTTP(w, r)
}

// content is the input of the template of one page. Live returns what a script updates.
type content interface{ Live() live }

// frame is the input of page.html.
type frame struct {
	Kind, Root string // Root is the path to the first page
	Version    string // of the page's static files
	Content    content
}

// failed is the content of a page that could not be created.
type failed struct {
	Code int
	Text string
}

func (f failed) Live() live { return live{Title: f.Text} }

// page returns a handler that answers with a complete page; with ?part, it answers only
// with the part that changes.
func (p *Page) page(kind, root string, make func(context.Context, *http.Request) (content, error)) http.HandlerFunc {
	version := assetVersion()
	return func(w http.ResponseWriter, r *http.Request) {
		part := r.URL.Query().Has("part")
		code := http.StatusOK
		f := frame{Kind: kind, Root: root, Version: version}
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
			c, err := make(r.Context(), r)
			if _, is := c.(pastPage); is {
				f.Kind = "past"
			}
			if f.Content = c; err != nil {
				code = http.StatusBadGateway
				if errors.Is(err, ErrNotFound) {
					code = http.StatusNotFound
				}
				f.Kind, f.Content = "failed", failed{code, err.Error()}
			}
		default:
			code = http.StatusTooManyRequests
			f.Kind, f.Content = "failed", failed{code, "too many pages are being made at this moment"}
		}
		if part && code != http.StatusOK {
			http.Error(w, short(f.Content.Live().Title), code)
			return
		}
		name := "page.html"
		if part {
			name = "live"
		}
		var b bytes.Buffer
		if err := p.pages.ExecuteTemplate(&b, name, f); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = b.WriteTo(w)
	}
}

// assetVersion returns a version that changes with the page's static files, so that browsers can
// cache them.
func assetVersion() string {
	h := sha256.New()
	for _, name := range []string{"page.css", "page.js"} {
		h.Write(fileOf(name))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func fileOf(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return b
}

func asset(name, kind string) http.HandlerFunc {
	b := fileOf(name)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		_, _ = w.Write(b)
	}
}

// logOptions parses the query of a request for a log.
func logOptions(r *http.Request) (LogOptions, error) {
	q := r.URL.Query()
	o := LogOptions{Container: r.PathValue("container"), Follow: q.Has("follow"), Previous: q.Has("previous"), Timestamps: q.Has("timestamps"), Tail: tailLines}
	if s := q.Get("tail"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > 100_000 {
			return o, fmt.Errorf("tail=%.40q: want a number from 0 to 100000", s)
		}
		o.Tail = n
	}
	if s := q.Get("since"); s != "" {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			return o, fmt.Errorf("since=%.40q: want a time such as %s", s, time.RFC3339)
		}
		o.Since = at
	}
	return o, nil
}

// log answers with the last part of a container's log. With ?follow it continues with new lines.
// With ?download the browser saves the answer as a file.
func (p *Page) log(w http.ResponseWriter, r *http.Request) {
	select {
	case p.logs <- struct{}{}:
		defer func() { <-p.logs }()
	default:
		http.Error(w, "too many logs are being followed", http.StatusTooManyRequests)
		return
	}
	o, err := logOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), followTime)
	defer cancel()
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	log, err := p.cfg.Agent.Log(ctx, namespace, name, o)
	if err != nil {
		code := http.StatusBadGateway
		if errors.Is(err, ErrNotFound) {
			code = http.StatusNotFound
		}
		http.Error(w, err.Error(), code)
		return
	}
	defer func() { _ = log.Close() }()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.URL.Query().Has("download") {
		file := "log.txt"
		if plainNames(name, o.Container) {
			file = name + "-" + o.Container + ".log"
		}
		w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
	}
	rc := http.NewResponseController(w)
	_ = rc.Flush() // so that a browser knows at once that there is a log, even if it is silent
	buf := make([]byte, 32<<10)
	for {
		n, err := log.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(pageReaderTimeout))
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
