package nodelog

import (
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// serveFile serves a file or the list of a directory. Programs that write logs control the
// content and often the name of a file, so a browser must not treat it as a page of this server:
// every file, even index.html, is sent as text or bytes.
func (d dir) serveFile(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, fmt.Sprintf("method %.16q; want GET or HEAD", r.Method), http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == "" {
		name = "."
	}
	f, err := d.open(r.Context(), name)
	switch {
	case err != nil:
		refuse(w, err)
	case f == nil && !strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "":
		w.Header().Set("Location", "./"+url.PathEscape(path.Base(name))+"/") // so that relative links in the list work
		w.WriteHeader(http.StatusMovedPermanently)
	case f == nil:
		d.serveList(w, r, name)
	default:
		defer func() { _ = f.Close() }()
		w.Header().Set("Content-Type", contentType(name))
		http.ServeContent(w, r, "", f.Info().ModTime(), f)
	}
}

// contentType returns the content type for a file, by its name.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".gz", ".xz", ".zst", ".bz2", ".journal":
		return "application/octet-stream"
	default:
		return "text/plain; charset=utf-8"
	}
}

func (d dir) serveList(w http.ResponseWriter, r *http.Request, name string) {
	names, err := d.list(r.Context(), name)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n")
	for _, n := range names {
		link := url.URL{Path: n} // so that a colon in a name is not read as a scheme
		fmt.Fprintf(w, "<a href=\"%s\">%s</a>\n", html.EscapeString(link.String()), html.EscapeString(n))
	}
	fmt.Fprint(w, "</pre>\n")
}

// refuse answers with a status code for err. The text of the error is not sent.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid):
		code = http.StatusNotFound
	case errors.Is(err, fs.ErrPermission):
		code = http.StatusForbidden
	}
	http.Error(w, http.StatusText(code), code)
}
