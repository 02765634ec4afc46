package nodelog

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newDir has logs, and what is no business of anybody.
func newDir(t *testing.T) Config {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "log")
	journalctl := filepath.Join(base, "journalctl")
	script := "#!/bin/sh\nif [ \"$1\" = --field ]; then printf 'kubelet.service\\ninit.scope\\n'; else echo \"$@\"; echo complaint >&2; fi\n"
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "pods", "x"), 0o755), os.MkdirAll(filepath.Join(dir, "svc3"), 0o755),
		os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(dir, "a.log"), []byte("a's log\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "svc1"), []byte("one\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "svc2.log"), []byte("two\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "svc3", "svc3.log"), []byte("three\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "pods", "x", "0.log"), []byte("pod's log\n"), 0o600),
		os.Symlink(filepath.Join(dir, "pods", "x", "0.log"), filepath.Join(dir, "within")),
		os.Symlink("../secret", filepath.Join(dir, "out")), os.Symlink(filepath.Join(base, "secret"), filepath.Join(dir, "out2")),
		os.Symlink(base, filepath.Join(dir, "above")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.WriteFile(journalctl, []byte(script), 0o700), //nolint:gosec // it is run
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return Config{Dir: dir, Journalctl: journalctl, Query: true}
}

func TestFilesAndQueries(t *testing.T) {
	c := newDir(t)
	h := http.StripPrefix("/logs", Handler(c))
	for _, tc := range []struct {
		url  string
		code int
		body string
	}{
		{"/logs/a.log", 200, "a's log\n"},
		{"/logs/", 200, "svc2.log"},
		{"/logs/pods/x/0.log", 200, "pod's log"},
		{"/logs/within", 200, "pod's log"},
		{"/logs/none", 404, ""}, {"/logs/out", 404, ""}, {"/logs/out2", 404, ""}, {"/logs/above/secret", 404, ""},
		{"/logs/fifo", 403, ""},
		{"/logs/%2e%2e/secret", 404, ""}, {"/logs/..%5csecret", 404, ""},
		{"/logs/?query=kubelet", 200, "--utc --no-pager --output=short-precise --unit=kubelet\ncomplaint\n"},
		{"/logs/?query=kubelet&tailLines=5&boot=-1&pattern=a%20b", 200, "--pager-end --lines=5 --unit=kubelet --grep=a b --boot -1"},
		{"/logs/?query=svc1", 200, "one\n"}, {"/logs/?query=svc2", 200, "two\n"}, {"/logs/?query=svc3", 200, "three\n"},
		{"/logs/?query=svc1&query=svc2", 200, "one\ntwo\n"},
		{"/logs/?query=a.log", 200, "a's log\n"},
		{"/logs/?query=none", 200, "log not found for none\n"},
		{"/logs/?query=fifo", 200, "log not found for fifo\n"}, {"/logs/?query=out", 200, "log not found for out\n"},
		{"/logs/?query=svc1&tailLines=1", 200, "options present"},
		{"/logs/?query=/a.log", 200, "a's log\n"}, {"/logs/?query=pods/x/0.log", 200, "pod's log\n"},
		{"/logs/?query=pods%5Cx%5C0.log", 200, "pod's log\n"},
		{"/logs/?query=/../../etc/passwd", 406, ""}, {"/logs/?query=../../etc/passwd", 406, "below the directory"},
		{"/logs/?query=./out", 406, ""}, {"/logs/?query=./fifo", 406, ""}, {"/logs/?query=./pods", 406, "want a file"}, {"/logs/?query=./none", 406, ""},
		{"/logs/a.log?query=kubelet", 406, "path not allowed"},
		{"/logs/?query=", 400, "blank"}, {"/logs/?query=%20%20", 400, "blank"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.url, nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) || strings.Contains(w.Body.String(), "secret") && tc.code == 200 {
			t.Errorf("%s = %d %q, want %d %q", tc.url, w.Code, w.Body, tc.code, tc.body)
		}
	}
	c.Query = false
	w := httptest.NewRecorder()
	Handler(c).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?query=kubelet", nil))
	if strings.Contains(w.Body.String(), "--unit") || !strings.Contains(w.Body.String(), "svc2.log") {
		t.Errorf("a query without the feature: %q", w.Body)
	}
}

func TestGzip(t *testing.T) {
	c := newDir(t)
	for accept, zipped := range map[string]bool{"gzip": true, "gzip, deflate": false, "": false} {
		r := httptest.NewRequest(http.MethodGet, "/?query=svc1", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		Handler(c).ServeHTTP(w, r)
		var body io.Reader = w.Body
		if (w.Header().Get("Content-Encoding") == "gzip") != zipped {
			t.Fatalf("%q: encoding %q", accept, w.Header().Get("Content-Encoding"))
		}
		if zipped {
			var err error
			if body, err = gzip.NewReader(w.Body); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := io.ReadAll(body); err != nil || string(b) != "one\n" {
			t.Errorf("%q: %q, %v", accept, b, err)
		}
	}
}

func TestParseAndValidate(t *testing.T) {
	exists := func(name string) error {
		if name == "/there" {
			return nil
		}
		return errors.New("not there")
	}
	long := strings.Repeat("x", 257)
	for _, tc := range []struct{ query, parse, valid string }{
		{"", "none", ""},
		{"other=1", "none", ""},
		{"query=a", "", ""}, {"query=a&query=b&query=c&query=d", "", ""}, {"query=a_b.c:d@e-f", "", ""},
		{"query=/there", "", ""},
		{"query=a&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:04:06Z", "", ""},
		{"query=a&untilTime=2026-01-02T03:04:06Z", "", ""}, // crashes the reference
		{"query=a&tailLines=0", "", ""}, {"query=a&tailLines=100000", "", ""}, {"query=a&boot=0", "", ""}, {"query=a&boot=-5", "", ""},
		{"query=a&pattern=(a|b)%2B", "", ""},
		{"query=", "blank", ""}, {"query=%20", "blank", ""},
		{"query=a&sinceTime=noon", "sinceTime", ""}, {"query=a&untilTime=1", "untilTime", ""},
		{"query=a&tailLines=x", "tailLines", ""}, {"query=a&boot=x", "boot", ""}, {"query=a&boot=1.5", "boot", ""},
		{"tailLines=5", "", "query is required"}, {"pattern=x", "", "query is required"}, {"boot=0", "", "query is required"},
		{"query=a&query=b&query=c&query=d&query=e", "", "at most 4"},
		{"query=" + long, "", "at most 256"}, {"query=a;b", "", "none"}, {"query=a%3Bb", "", "letters"}, {"query=a%20b", "", "letters"},
		{"query=%24(ls)", "", "letters"}, {"query=a%00", "", "letters"}, {"query=%C3%A9", "", "letters"},
		{"query=a&query=/there", "", "one kind"}, {"query=/there&query=/there2", "", "want one"},
		{"query=/there&tailLines=1", "", "services only"}, {"query=/missing", "", "not there"},
		{"query=a&sinceTime=2026-01-02T03:04:06Z&untilTime=2026-01-02T03:04:05Z", "", "after untilTime"},
		{"query=a&boot=1", "", "boot is 1"}, {"query=a&tailLines=-1", "", "tailLines is -1"}, {"query=a&tailLines=100001", "", "tailLines"},
		{"query=a&pattern=(", "", "pattern"},
	} {
		q, perr := url.ParseQuery(tc.query)
		if perr != nil {
			continue // a semicolon: net/http drops it
		}
		got, err := parse(q)
		switch {
		case tc.parse == "none":
			if got != nil || err != nil {
				t.Errorf("%s: %v, %v; want no query", tc.query, got, err)
			}
		case tc.parse != "":
			if err == nil || !strings.Contains(err.Error(), tc.parse) {
				t.Errorf("%s: %v, want %s", tc.query, err, tc.parse)
			}
		case err != nil:
			t.Errorf("%s: %v", tc.query, err)
		default:
			err := got.validate(exists)
			if (err == nil) != (tc.valid == "") || err != nil && !strings.Contains(err.Error(), tc.valid) {
				t.Errorf("%s: %v, want %q", tc.query, err, tc.valid)
			}
		}
	}
}

func TestCommand(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	tail, boot := 10, 0
	for _, tc := range []struct {
		q    query
		want string
	}{
		{query{}, "--utc --no-pager --output=short-precise --unit=s"},
		{query{until: at}, "--utc --no-pager --output=short-precise --until=2026-01-02 02:04:05 --unit=s"},
		{
			query{since: at, until: at, tail: &tail, boot: &boot, pattern: "p"},
			"--utc --no-pager --output=short-precise --since=2026-01-02 02:04:05 --until=2026-01-02 02:04:05 --pager-end --lines=10 --unit=s --grep=p --boot 0",
		},
	} {
		if got := strings.Join(tc.q.command("s"), " "); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

// A query that is taken asks journalctl with nothing but options of ours.
func FuzzQuery(f *testing.F) {
	f.Add("query=kubelet&tailLines=5&boot=0&pattern=x&sinceTime=2026-01-02T03:04:05Z")
	f.Fuzz(func(t *testing.T, raw string) {
		v, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q, err := parse(v)
		if err != nil || q == nil || q.validate(func(string) error { return errors.New("no") }) != nil {
			return
		}
		for _, s := range q.services {
			for i, arg := range q.command(s) {
				if !strings.HasPrefix(arg, "--") && q.command(s)[i-1] != "--boot" {
					t.Errorf("%q has the argument %q", raw, arg)
				}
			}
		}
	})
}
