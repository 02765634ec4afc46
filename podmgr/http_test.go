package podmgr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string, header http.Header) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

// What a URL holds beside host and path may be a credential, and is in no log,
// no problem and no error, whatever the server does.
func TestURLIsASecret(t *testing.T) {
	const address = "https://some-user:some-password@host/pods?token=some-token#some-fragment"
	redirect := func(to string) *http.Response { return answer(http.StatusFound, "", http.Header{"Location": {to}}) }
	for name, rt := range map[string]roundTrip{
		"down":             func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") },
		"an error with it": func(r *http.Request) (*http.Response, error) { return nil, &urlError{r} },
		"refused":          func(*http.Request) (*http.Response, error) { return answer(http.StatusForbidden, "", nil), nil },
		"broken":           func(*http.Request) (*http.Response, error) { return answer(http.StatusOK, "{ bad", nil), nil },
		"no pod": func(*http.Request) (*http.Response, error) {
			return answer(http.StatusOK, podYAML("a", ", x: y"), nil), nil
		},
		"redirect to http":  func(*http.Request) (*http.Response, error) { return redirect("http://host/?token=some-token"), nil },
		"redirect for ever": func(*http.Request) (*http.Response, error) { return redirect("/?token=some-token"), nil },
		"bad redirect":      func(*http.Request) (*http.Response, error) { return redirect("://some-token"), nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zap.DebugLevel))
			src, err := HTTP(HTTPConfig{URL: address, NodeName: "n", Client: rt, Log: logger})
			if err != nil {
				t.Fatal(err)
			}
			m, err := New(Config{Sources: []Source{src}, Log: logger})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = m.Run(ctx)
			told := log.String() + fmt.Sprint(m.Problems())
			if strings.Contains(told, "some-") || !strings.Contains(told, "https://host/pods") {
				t.Errorf("%s: told is %s", name, told)
			}
		})
	}
	for _, bad := range []string{"ftp://some-user:p@h/?some-token", "https://some-user:p@%zz/?some-token", "https:///?some-token"} {
		if _, err := HTTP(HTTPConfig{URL: bad, NodeName: "n"}); err == nil || strings.Contains(err.Error(), "some-") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

type urlError struct{ r *http.Request }

func (e *urlError) Error() string { return "no route to host" }

// Where a URL leads elsewhere, nothing goes along that was meant for its host.
func TestRedirects(t *testing.T) {
	const header = "X-Token"
	for _, tc := range []struct {
		from string
		hops []string
		err  string
		sent []bool // whether the headers go along, hop by hop
	}{
		{"https://a/1", []string{"https://a/2"}, "", []bool{true}},
		{"http://a/1", []string{"https://a/2"}, "", []bool{true}},
		{"http://a/1", []string{"https://A:443/2"}, "", []bool{true}},
		{"https://a/1", []string{"https://b/2"}, "", []bool{false}},
		{"https://a/1", []string{"https://sub.a/2"}, "", []bool{false}},
		{"https://a/1", []string{"https://a:8443/2"}, "", []bool{false}},
		{"https://a/1", []string{"https://b/2", "https://a/3"}, "", []bool{false, false}},
		{"https://a/1", []string{"http://a/2"}, "redirected from https to http", nil},
		{"http://a/1", []string{"https://a/2", "http://a/3"}, "redirected from https to http", []bool{true}},
		{"https://a/1", []string{"file:///etc/passwd"}, "want http or https", nil},
	} {
		var sent []bool
		hop := 0
		src, err := HTTP(HTTPConfig{
			URL: strings.Replace(tc.from, "://", "://user:password@", 1) + "?token=x", NodeName: "n",
			Header: http.Header{header: {"secret"}, "x-lower": {"secret"}},
			Client: roundTrip(func(r *http.Request) (*http.Response, error) {
				if hop > 0 {
					all := fmt.Sprint(r.Header)
					sent = append(sent, strings.Contains(all, "secret"))
					if has := r.Header.Get(header) != ""; has != strings.Contains(all, "secret") || r.Header.Get("Referer") != "" || !has && r.Header.Get("Authorization") != "" {
						t.Errorf("%v: headers %v", tc.hops, r.Header)
					}
				}
				if hop == len(tc.hops) {
					return answer(http.StatusOK, podYAML("a", ""), nil), nil
				}
				hop++
				return answer(http.StatusFound, "", http.Header{"Location": {tc.hops[hop-1]}}), nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.(*web).fetch(t.Context())
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || fmt.Sprint(sent) != fmt.Sprint(append([]bool{}, tc.sent...)) {
			t.Errorf("%s to %v: %v, headers sent %v; want %q, %v", tc.from, tc.hops, err, sent, tc.err, tc.sent)
		}
	}
}

// A server that redirects, answers or drips for ever is left.
func TestServerWithoutEnd(t *testing.T) {
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		switch r.URL.Path {
		case "/redirects":
			http.Redirect(w, r, "/redirects", http.StatusFound)
		case "/bytes":
			for range maxManifest/1024 + 2 {
				_, _ = w.Write(make([]byte, 1024))
			}
		}
	}))
	defer srv.Close()
	for path, want := range map[string]string{"/redirects": "more than 10 redirects", "/bytes": "larger than"} {
		src, err := HTTP(HTTPConfig{URL: srv.URL + path, NodeName: "n"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.(*web).fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if n != maxRedirects+2 {
		t.Errorf("%d requests", n)
	}
	synctest.Test(t, func(t *testing.T) {
		src, err := HTTP(HTTPConfig{URL: "http://host/", NodeName: "n", Client: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(drip{r.Context()})}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := src.(*web).fetch(t.Context()); err == nil || time.Since(began) != httpTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// drip is a body of a byte each second, until its request ends.
type drip struct{ ctx context.Context }

func (d drip) Read(b []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
		b[0] = 'x'
		return 1, nil
	}
}
