package nodelog

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
)

func get(h http.Handler, url string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	return w
}

// Whoever may write a log writes a page, to be run as one of the node's.
func TestNoLogIsAPage(t *testing.T) {
	c := newDir(t)
	const page = "<html><script>alert(1)</script>"
	for _, name := range []string{"index.html", "a.html", "b.svg", "c.js", "noext", "pods/index.html", "z.gz", "<img src=x>", "javascript:alert(1)"} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := http.StripPrefix("/logs", Handler(c))
	for url, want := range map[string]string{
		"/logs/index.html": "text/plain; charset=utf-8", "/logs/a.html": "text/plain; charset=utf-8", "/logs/b.svg": "text/plain; charset=utf-8",
		"/logs/c.js": "text/plain; charset=utf-8", "/logs/noext": "text/plain; charset=utf-8", "/logs/pods/index.html": "text/plain; charset=utf-8",
		"/logs/z.gz": "application/octet-stream", "/logs/?query=./index.html": "text/plain; charset=utf-8",
	} {
		w := get(h, url)
		if w.Code != http.StatusOK || w.Body.String() != page || w.Header().Get("Content-Type") != want || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v %q", url, w.Code, w.Header(), w.Body)
		}
	}
	for _, url := range []string{"/logs/", "/logs/pods/", "/logs"} { // lists, though there is an index.html
		w := get(h, url)
		if body := w.Body.String(); w.Code != http.StatusOK || strings.Contains(body, "<script>") || !strings.Contains(body, ">index.html</a>") ||
			strings.Contains(body, "<img") || strings.Contains(body, `"javascript:`) {
			t.Errorf("%s: %d %q", url, w.Code, body)
		}
	}
	for _, url := range []string{"/logs/", "/logs/none", "/logs/fifo", "/logs/pods", "/logs/?query=none", "/logs/?query=", "/logs/a.log?query=a"} {
		if w := get(h, url); w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", url, w.Header())
		}
	}
	if w := get(h, "/logs/pods"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "./pods/" {
		t.Errorf("a directory: %d, %q", w.Code, w.Header().Get("Location"))
	}
}

func TestAPartOfAFile(t *testing.T) {
	c := newDir(t)
	r := httptest.NewRequest(http.MethodGet, "/a.log", nil)
	r.Header.Set("Range", "bytes=2-3")
	w := httptest.NewRecorder()
	Handler(c).ServeHTTP(w, r)
	if w.Code != http.StatusPartialContent || w.Body.String() != "s " {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	Handler(c).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/a.log", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestALongListIsCut(t *testing.T) {
	d := dir(t.TempDir())
	for i := range maxNames + 10 {
		if err := os.Symlink("x", filepath.Join(string(d), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := d.list(t.Context(), "."); err != nil || len(names) != maxNames {
		t.Errorf("%d names, %v", len(names), err)
	}
}

// A journal may know any number of units.
func TestUnitsAreCut(t *testing.T) {
	c := newDir(t)
	script := "#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' 'x'\n"
	if err := os.WriteFile(c.Journalctl, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	c.Timeout = time.Minute
	if u := c.units(t.Context()); len(u) != 1 || len(u[0]) != maxUnits {
		t.Errorf("%d names", len(u))
	}
}

// A request for a file that does not come ends, and costs one goroutine however
// often it is made.
func TestAFileSystemThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newDir(t)
		hang := make(chan struct{})
		key := dir(c.Dir).system(t.Context(), "a.log").Key
		go func() {
			_, _ = detached.Next(t.Context(), calls, key, func() (int, error) { <-hang; return 0, errors.New("late") })
		}()
		synctest.Wait()
		began := time.Now()
		for range 10 {
			if w := get(Handler(c), "/a.log"); w.Code != http.StatusInternalServerError {
				t.Errorf("%d %q", w.Code, w.Body)
			}
		}
		if took := time.Since(began); took != 10*answer || calls.InFlight() != 1 {
			t.Errorf("%v with %d calls in flight", took, calls.InFlight())
		}
		if w := get(Handler(c), "/svc1"); w.Body.String() != "one\n" {
			t.Errorf("another file: %d %q", w.Code, w.Body)
		}
		close(hang)
	})
}
