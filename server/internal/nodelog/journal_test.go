package nodelog

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// journalctl says what it can, and holds nobody up: what goes wrong is a line
// of the answer. Without one, or without its list of units, files are looked for.
func TestJournalctlThatFails(t *testing.T) {
	const units = "#!/bin/sh\nif [ \"$1\" = --field ]; then echo svc1.service; exit; fi\n"
	for _, tc := range []struct{ name, script, want string }{
		{"ends with an error", units + "echo partly; exit 3\n", "partly\n\njournalctl: exit status 3\n"},
		{"hangs", units + "echo partly; exec sleep 600\n", "partly\n\njournalctl: signal: killed\ncontext deadline exceeded\n"},
		{"hangs when it lists", "#!/bin/sh\nexec sleep 600\n", "one\n"},
		{"knows no units", "#!/bin/sh\nexit 1\n", "one\n"},
		{"is not there", "", "one\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newDir(t)
			c.Timeout = time.Second
			if strings.Contains(tc.script, "sleep") {
				c.Timeout = 200 * time.Millisecond // that of a real process
			}
			c.Journalctl = filepath.Join(t.TempDir(), "journalctl")
			if tc.script != "" {
				if err := os.WriteFile(c.Journalctl, []byte(tc.script), 0o700); err != nil { //nolint:gosec // it is run
					t.Fatal(err)
				}
			}
			w := httptest.NewRecorder()
			Handler(c).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?query=svc1", nil))
			if w.Code != 200 || w.Body.String() != tc.want {
				t.Errorf("%d %q, want %q", w.Code, w.Body, tc.want)
			}
		})
	}
}

// Whatever a path or a query names, nothing outside of the directory is shown.
func FuzzPaths(f *testing.F) {
	for _, p := range []string{"a.log", "../secret", "out", "out2", "above/secret", "within", "fifo", "./out", `..\secret`, "/../secret", "pods/../../secret", "%2e%2e/secret", "svc3/"} {
		f.Add(p)
	}
	base := f.TempDir()
	dir := filepath.Join(base, "log")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "pods"), 0o755),
		os.WriteFile(filepath.Join(base, "secret"), []byte("hidden"), 0o600),
		os.WriteFile(filepath.Join(dir, "a.log"), []byte("shown"), 0o600),
		os.Symlink("../secret", filepath.Join(dir, "out")), os.Symlink(base, filepath.Join(dir, "above")),
		os.Symlink("a.log", filepath.Join(dir, "within")),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	h := Handler(Config{Dir: dir, Query: true, Journalctl: filepath.Join(base, "none")})
	f.Fuzz(func(t *testing.T, name string) {
		for _, change := range []func(*http.Request){
			func(r *http.Request) { r.URL.Path = "/" + name },
			func(r *http.Request) { r.URL.Path = name },
			func(r *http.Request) { r.URL.RawQuery = "query=" + name },
		} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			change(r)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if strings.Contains(w.Body.String(), "hidden") {
				t.Errorf("%q shows what is outside", name)
			}
		}
	})
}
