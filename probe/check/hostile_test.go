package check_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodewright/nodewright/probe/check"
)

// raw is a server that reads the head of a request and writes what it wants,
// and the bytes that it could write.
func raw(t *testing.T, answer func(w io.Writer, path string)) (u *url.URL, wrote *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	wrote = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				answer(&counted{c, wrote}, r.URL.Path)
			}()
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}, wrote
}

type counted struct {
	w io.Writer
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// endless writes s until nobody reads any more.
func endless(w io.Writer, s string) {
	for {
		if _, err := io.WriteString(w, s); err != nil {
			return
		}
	}
}

// Whatever a server sends, and however much, costs a check bounded bytes and
// no more than its time.
func TestHostileServers(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 32<<20))
	_ = z.Close()
	line := strings.Repeat("x", 1000)
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name   string
		answer func(w io.Writer, path string)
		want   check.Outcome
		fails  bool
	}{
		{"a header that does not end", func(w io.Writer, _ string) { _, _ = io.WriteString(w, ok+"X: "); endless(w, line) }, check.Failure, false},
		{"headers that do not end", func(w io.Writer, _ string) { _, _ = io.WriteString(w, ok); endless(w, "X: "+line+"\r\n") }, check.Failure, false},
		{"a status that does not end", func(w io.Writer, _ string) { endless(w, line) }, check.Failure, false},
		{"interim answers that do not end", func(w io.Writer, _ string) { endless(w, "HTTP/1.1 103 Early Hints\r\nX: "+line+"\r\n\r\n") }, check.Failure, false},
		{"a body that does not end", func(w io.Writer, _ string) { _, _ = io.WriteString(w, ok+"\r\n"); endless(w, line) }, check.Success, false},
		{"a body as long as can be said", func(w io.Writer, _ string) {
			_, _ = io.WriteString(w, ok+"Content-Length: 9223372036854775807\r\n\r\n")
			endless(w, line)
		}, check.Success, false},
		{"chunks that do not end", func(w io.Writer, _ string) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n")
			endless(w, fmt.Sprintf("%x\r\n%s\r\n", len(line), line))
		}, check.Success, false},
		{"a chunk's extension that does not end", func(w io.Writer, _ string) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n1;")
			endless(w, line)
		}, check.Failure, true},
		{"extensions of small chunks", func(w io.Writer, _ string) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n")
			endless(w, "1;"+line+"\r\nx\r\n")
		}, check.Failure, true},
		{"trailers that do not end", func(w io.Writer, _ string) {
			_, _ = io.WriteString(w, ok+"Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
			endless(w, "X: "+line+"\r\n")
		}, check.Failure, true},
		{"a body that decompresses to more", func(w io.Writer, _ string) {
			fmt.Fprintf(w, ok+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", bomb.Len())
			_, _ = w.Write(bomb.Bytes())
		}, check.Success, false},
		{"redirects that do not end, with bodies that do not", func(w io.Writer, path string) {
			fmt.Fprintf(w, "HTTP/1.1 302 Found\r\nLocation: %sx\r\n\r\n", path)
			endless(w, line)
		}, check.Failure, false},
		{"a redirect to a place that cannot be", func(w io.Writer, _ string) {
			fmt.Fprintf(w, "HTTP/1.1 302 Found\r\nLocation: http://%s:x/\r\n\r\n", strings.Repeat("y", 60000))
		}, check.Failure, false},
		{"a redirect elsewhere with a long body", func(w io.Writer, _ string) {
			_, _ = io.WriteString(w, "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.invalid/\r\n\r\n")
			endless(w, line)
		}, check.Warning, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, _ := raw(t, c.answer)
			u.Path = "/"
			for _, keep := range []bool{false, true} {
				client := check.NewClient(check.ClientConfig{KeepAlive: keep})
				began := time.Now()
				o, out, err := check.HTTP{URL: u, Client: client}.Check(within(t, testTimeout))
				client.Close()
				if o != c.want || (err != nil) != c.fails || len(out) > check.MaxOutput || err != nil && len(err.Error()) > check.MaxOutput {
					t.Errorf("keep-alive %t: %v, %d bytes %.60q, %v; want %v, at most %d bytes", keep, o, len(out), out, err, c.want, check.MaxOutput)
				}
				if d := time.Since(began); d > testTimeout/2 {
					t.Errorf("it took %v", d)
				}
			}
		})
	}
}

// A server that never gets to the end of its answer costs the check's time.
func TestHostileServersThatAreSlow(t *testing.T) {
	drip := func(head string) func(io.Writer, string) {
		return func(w io.Writer, _ string) {
			_, err := io.WriteString(w, head)
			for err == nil {
				time.Sleep(time.Millisecond)
				_, err = io.WriteString(w, "x")
			}
		}
	}
	for name, head := range map[string]string{
		"nothing": "", "header": "HTTP/1.1 200 OK\r\nX: ", "body": "HTTP/1.1 200 OK\r\n\r\n",
		"trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
	} {
		u, _ := raw(t, drip(head))
		began := time.Now()
		o, _, err := check.HTTP{URL: u}.Check(within(t, 100*time.Millisecond))
		if o != check.Failure || err != nil || time.Since(began) > time.Minute {
			t.Errorf("%s: %v, %v after %v; want a failure after 0.1s", name, o, err, time.Since(began))
		}
	}
}

// What a command wrote is not kept beyond what is used of it.
func TestExecKeepsNoMoreThanItUses(t *testing.T) {
	var kept []string
	for range 20 {
		e := check.Exec{Run: func(context.Context, []string, time.Duration) ([]byte, error) {
			return bytes.Repeat([]byte("x"), 16<<20), nil
		}}
		_, out, _ := e.Check(t.Context())
		kept = append(kept, out)
	}
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	if m.HeapAlloc > 64<<20 {
		t.Errorf("%d MiB are kept of 20 outputs of 10 KiB", m.HeapAlloc>>20)
	}
	goruntime.KeepAlive(kept)
}

// Commands that os/exec runs can be checks as they are.
func TestExecOfOSExec(t *testing.T) {
	run := func(ctx context.Context, command []string, _ time.Duration) ([]byte, error) {
		return exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput() //nolint:gosec // the test's own
	}
	for _, c := range []struct {
		script string
		want   check.Outcome
		output string // its beginning
		limit  time.Duration
	}{
		{"echo fine", check.Success, "fine\n", testTimeout},
		{"echo bad; exit 3", check.Failure, "bad\n", testTimeout},
		{"echo killed; kill -9 $$", check.Failure, "killed\n", testTimeout},
		{"exec sleep 600", check.Failure, "command timed out after", time.Second},
	} {
		o, out, err := check.Exec{Command: []string{"sh", "-c", c.script}, Run: run}.Check(within(t, c.limit))
		if o != c.want || !strings.HasPrefix(out, c.output) || err != nil {
			t.Errorf("%s: %v, %q, %v; want %v, %q", c.script, o, out, err, c.want, c.output)
		}
	}
	var notFound *exec.Error
	if o, _, err := (check.Exec{Command: []string{"no-such-command"}, Run: run}).Check(within(t, testTimeout)); o != check.Unknown || !errors.As(err, &notFound) {
		t.Errorf("a command that does not exist: %v, %v; want Unknown and an error", o, err)
	}
}
