//go:build linux

package image

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// badLink is a registry behind a bad link. All counts are of requests for blobs.
type badLink struct {
	*server
	breaks    int           // bytes after which a connection breaks; 0: never
	pause     time.Duration // before every 64 KiB
	busy      int           // every so many requests are answered 429
	tokenFor  int           // requests that a token is good for; 0: no token is needed
	lies      bool          // answers to requests for a range are not what they say
	onRequest func(first int)

	turn   sync.Mutex // one request at a time; guards the fields below
	good   int        // requests for which the token is good
	tokens int
	sent   int // bytes of blobs
	ranges []string
}

func (b *badLink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.turn.Lock()
	defer b.turn.Unlock()
	if r.URL.Path == "/token" {
		b.tokens++
		b.good = b.tokenFor
		_, _ = fmt.Fprintf(w, `{"token":"%d"}`, b.tokens)
		return
	}
	if b.tokenFor > 0 && (r.Header.Get("Authorization") != fmt.Sprint("Bearer ", b.tokens) || b.good == 0) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token",service="s"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	b.good--
	_, ref, ok := strings.Cut(r.URL.Path, "/blobs/")
	blob := b.blobs[digest(ref)]
	if !ok || len(blob) < 1<<20 { // a manifest or config
		b.server.ServeHTTP(w, r)
		return
	}
	b.ranges = append(b.ranges, r.Header.Get("Range"))
	first, asked := firstByte(r), len(b.ranges)
	if b.busy > 0 && asked%b.busy == 0 {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if b.onRequest != nil {
		b.onRequest(first)
	}
	length, said, code := len(blob)-first, first, http.StatusOK
	if first > 0 {
		code = http.StatusPartialContent
	}
	if b.lies {
		switch asked {
		case 2: // all of it, though a range was requested
			first, length, code = 0, len(blob), http.StatusOK
		case 3: // another range
			said = first + 1
		case 5: // fewer bytes than it says
			blob = blob[:first+1000]
		case 6: // other bytes
			blob = make([]byte, len(blob))
		}
	}
	if code == http.StatusPartialContent {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", said, len(blob)-1, len(b.blobs[digest(ref)])))
	}
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(code)
	rest := blob[first:]
	if b.breaks > 0 {
		rest = rest[:min(len(rest), b.breaks)]
	}
	for part := range slices.Chunk(rest, 64<<10) {
		if b.pause > 0 {
			time.Sleep(b.pause)
		}
		n, err := w.Write(part)
		b.sent += n
		if err != nil {
			return
		}
	}
	_ = http.NewResponseController(w).Flush()
	if len(rest) < length {
		panic(http.ErrAbortHandler) // closes the connection
	}
}

// firstByte is where the range begins that a request is for.
func firstByte(r *http.Request) int {
	first, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
	return first
}

// pipes is a network in memory to a server of net/http. TLS is left out.
func pipes(t testing.TB, h http.Handler) http.RoundTripper {
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	srv := &http.Server{Handler: h} //nolint:gosec // for tests
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, s := net.Pipe()
		select {
		case l.conns <- s:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	tr := &http.Transport{DialTLSContext: dial, DisableCompression: true}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = srv.Close()
		<-done
	})
	return tr
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// largeImage is the size of the image in TestBadLinks; 1 GiB with NODEWRIGHT_TEST_LARGE_IMAGE=1.
func largeImage() int {
	if os.Getenv("NODEWRIGHT_TEST_LARGE_IMAGE") != "" {
		return 1 << 30
	}
	return 64 << 20
}

// Over links and registries of all kinds a large image arrives, and hardly anything twice.
func TestBadLinks(t *testing.T) {
	needRoot(t)
	size := largeImage()
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	text := string(b)
	layer := archive(t, file("f", text))
	for name, c := range map[string]struct {
		link  *badLink
		least time.Duration
		times float64 // how often the layer is sent at most; 1.01 if it is 0
	}{
		"breaks every 64th":       {link: &badLink{breaks: size / 64}, least: 32 * time.Second},
		"breaks, slow and busy":   {link: &badLink{breaks: size / 16, pause: 64 << 10 * time.Hour / time.Duration(size), busy: 3}, least: time.Hour},
		"breaks and loses tokens": {link: &badLink{breaks: size / 16, tokenFor: 3}},
		"lies":                    {link: &badLink{breaks: size / 16, lies: true}, times: 2.2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := c.link
				link.server = newServer()
				link.plain = true
				link.image(t, "app", "1", nil, layer)
				cfg := testConfig(t, nil)
				rt := pipes(t, link)
				cfg.transport = func(Endpoint) http.RoundTripper { return rt }
				s, stop := start(t, cfg)
				defer stop()
				ref := host + "/app:1"
				link.onRequest = func(first int) {
					if first == 0 { // the first request, or one without a range
						return
					}
					if got, total := s.PullProgress(ref); got != int64(first) || total != int64(len(layer)) {
						t.Errorf("progress %d of %d at a request for bytes %d- of %d", got, total, first, len(layer))
					}
				}
				begin := time.Now()
				pull(t, s, ref)
				if took := time.Since(begin); took < c.least {
					t.Errorf("took %v, want at least %v", took, c.least)
				}
				root, err := s.Use(t.Context(), ref, "c1")
				must(t, err)
				if b, err := os.ReadFile(filepath.Join(root.Layers[0], "f")); err != nil || string(b) != text {
					t.Errorf("the file has other content, %v", err)
				}
				link.turn.Lock()
				defer link.turn.Unlock()
				if most := int(cmp.Or(c.times, 1.01) * float64(len(layer))); link.sent > most {
					t.Errorf("%d bytes were sent for a layer of %d, want at most %d; ranges %q", link.sent, len(layer), most, link.ranges)
				}
				if link.tokenFor > 0 && link.tokens < 4 {
					t.Errorf("asked for %d tokens", link.tokens)
				}
				t.Logf("%d requests, %d bytes for %d, %d tokens, %v", len(link.ranges), link.sent, len(layer), link.tokens, time.Since(begin))
			})
		})
	}
}

// A process that is killed again and again in a download goes on where it was.
func TestKilledDownloads(t *testing.T) {
	needRoot(t)
	layer := archive(t, file("f", randomText(16<<20)))
	srv := newServer()
	srv.plain = true
	m := srv.image(t, "app", "1", nil, layer)
	var mu sync.Mutex
	var cmd *exec.Cmd
	root, sent := filepath.Join(t.TempDir(), "images"), 0
	partial := filepath.Join(root, ingestDir, blobPrefix+m.layers[0].hex())
	srv.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		first := firstByte(r)
		end := min(first+len(layer)/4+1, len(layer))
		serveBlob(&cutWriter{w, end - first}, r, layer)
		_ = http.NewResponseController(w).Flush()
		sent += end - first
		if end == len(layer) {
			return true
		}
		for { // what the process has received
			if info, err := os.Stat(partial); err == nil && info.Size() == int64(end) || r.Context().Err() != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		<-r.Context().Done()
		return true
	}
	at := httptest.NewServer(srv)
	defer at.Close()
	for n := range 4 {
		mu.Lock()
		cmd = exec.Command(os.Args[0], "-test.run=^TestCrash$")
		cmd.Env = append(os.Environ(), crashDir+"="+root, crashURL+"="+strings.TrimPrefix(at.URL, "http://"))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start())
		mu.Unlock()
		if err := cmd.Wait(); (err == nil) != (n == 3) {
			t.Fatalf("process %d: %v: %s", n, err, out.String())
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if sent != len(layer) {
		t.Errorf("%d bytes were sent for a layer of %d", sent, len(layer))
	}
	s, _ := start(t, Config{RootDir: root, OS: "linux", Architecture: "amd64", Reserve: 1})
	if list, err := s.ListImages(t.Context(), nil); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// interrupted pulls an image of one layer until the server has sent a half of it, and stops the
// store. The server sends everything to later requests.
func interrupted(t *testing.T, srv *server, layer []byte) (s *Store, file string) {
	t.Helper()
	srv.plain = true
	m := srv.image(t, "app", "1", nil, layer)
	first := true
	srv.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !first || !strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
			return false
		}
		first = false
		serveBlob(&cutWriter{w, len(layer) / 2}, r, layer)
		<-r.Context().Done()
		return true
	}
	s, stop := start(t, testConfig(t, memory{host: srv}))
	done := make(chan error, 1)
	go func() {
		_, err := s.PullImage(t.Context(), spec(host+"/app:1"), nil, nil)
		done <- err
	}()
	synctest.Wait()
	stop()
	if <-done == nil {
		t.Fatal("pulled")
	}
	return s, s.path(ingestDir, blobPrefix+m.layers[0].hex())
}

// What a restart or a power failure leaves of a file is continued. What it has damaged costs one
// download from the start.
func TestPartialFilesAfterARestart(t *testing.T) {
	needRoot(t)
	layer := archive(t, file("a", randomText(1<<17)), file("b", randomText(1<<18)))
	half := len(layer) / 2
	for name, c := range map[string]struct {
		hurt  func(file string) error
		want  []string // ranges
		maybe string   // a range that is asked for unless garbage is found before the request is sent
	}{
		"as it was": {func(string) error { return nil }, []string{fmt.Sprintf("bytes=%d-", half)}, ""},
		"shorter":   {func(f string) error { return os.Truncate(f, 1000) }, []string{"bytes=1000-"}, ""},
		"longer, with zeros": {func(f string) error { return os.Truncate(f, int64(len(layer)-10)) },
			[]string{fmt.Sprintf("bytes=%d-", len(layer)-10), ""}, ""},
		"longer than the blob": {func(f string) error { return os.Truncate(f, 1<<20) }, []string{""}, ""},
		"complete, with zeros": {func(f string) error { return os.Truncate(f, int64(len(layer))) }, []string{""}, ""},
		"garbage in the archive": {func(f string) error { return os.WriteFile(f, bytes.Repeat([]byte("garbage"), half/7), 0o600) },
			[]string{""}, fmt.Sprintf("bytes=%d-", half/7*7)},
		"empty":   {func(f string) error { return os.Truncate(f, 0) }, []string{""}, ""},
		"gone":    {os.Remove, []string{""}, ""},
		"no file": {func(f string) error { return errors.Join(os.Remove(f), os.Mkdir(f, 0o700)) }, []string{""}, ""},
		"a link":  {func(f string) error { return errors.Join(os.Remove(f), os.Symlink("/dev/zero", f)) }, []string{""}, ""},
		"too old": {func(f string) error { return os.Chtimes(f, time.Time{}, time.Unix(0, 0)) }, []string{fmt.Sprintf("bytes=%d-", half)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer()
				s, file := interrupted(t, srv, layer)
				must(t, c.hurt(file))
				must(t, os.Mkdir(s.path(ingestDir, "layer-x"), 0o700))
				var ranges []string
				srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, strings.TrimPrefix(filepath.Base(file), blobPrefix)) {
						ranges = append(ranges, r.Header.Get("Range"))
					}
					return false
				}
				s, stop := start(t, s.cfg)
				defer stop()
				if _, err := os.Stat(s.path(ingestDir, "layer-x")); err == nil {
					t.Error("half a layer is kept")
				}
				pull(t, s, host+"/app:1")
				if i := slices.Index(ranges, c.maybe); c.maybe != "" && i >= 0 {
					ranges = slices.Delete(ranges, i, i+1)
				}
				if slices.Sort(ranges); !slices.Equal(ranges, slices.Sorted(slices.Values(c.want))) {
					t.Errorf("ranges %q, want %q", ranges, c.want)
				}
				empty(t, s, ingestDir)
			})
		})
	}
}

// An answer that is not the blob, such as the page of a portal, fails the pull and leaves the file
// for the next one.
func TestWrongAnswersKeepTheFile(t *testing.T) {
	needRoot(t)
	layer := archive(t, file("f", randomText(1<<18)))
	half := len(layer) / 2
	at := func(n int) string { return fmt.Sprintf("bytes=%d-", n) }
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   []string // ranges
	}{
		"a page": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "7")
			_, _ = w.Write([]byte("<html/>"))
		}, []string{at(half), at(half)}},
		"more bytes than the blob has": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", half, len(layer)-1, len(layer)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, len(layer)))
		}, []string{at(half), at(half + 2*copyBuffer), ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer()
				s, file := interrupted(t, srv, layer)
				var ranges []string
				srv.before = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, strings.TrimPrefix(filepath.Base(file), blobPrefix)) {
						return false
					}
					if ranges = append(ranges, r.Header.Get("Range")); len(ranges) > 1 {
						return false
					}
					c.answer(w)
					return true
				}
				s, stop := start(t, s.cfg)
				defer stop()
				if _, err := s.PullImage(t.Context(), spec(host+"/app:1"), nil, nil); status.Code(err) != codes.DataLoss {
					t.Errorf("%v, want DataLoss", err)
				}
				pull(t, s, host+"/app:1")
				if !slices.Equal(ranges, c.want) {
					t.Errorf("ranges %q, want %q", ranges, c.want)
				}
			})
		})
	}
}

// A mirror is asked again after its connection broke; the registry is asked for what the mirror
// does not send, and while it is busy. A mirror is told whose content it is asked for.
func TestBadMirrors(t *testing.T) {
	needRoot(t)
	layer := archive(t, file("f", randomText(1<<18)))
	busy := func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	cut := func(w http.ResponseWriter, r *http.Request, _ int) {
		first := firstByte(r)
		serveBlob(&cutWriter{w, min(len(layer)/8+1, len(layer)-first)}, r, layer)
	}
	for name, c := range map[string]struct {
		mirror, origin func(w http.ResponseWriter, r *http.Request, n int)
		most           time.Duration
		asked          [2]int // requests for the layer to the mirror and to the registry
	}{
		"breaks": {mirror: cut, most: 8 * time.Second, asked: [2]int{8, 0}},
		"busy":   {mirror: busy, most: time.Second, asked: [2]int{1, 1}},
		"both are busy": {mirror: busy, origin: func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				busy(w, r, n)
				return
			}
			serveBlob(w, r, layer)
		}, most: 2 * time.Minute, asked: [2]int{2, 2}},
		"breaks, and is gone": {mirror: func(w http.ResponseWriter, r *http.Request, n int) {
			if n < 3 {
				cut(w, r, n)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		}, most: 4 * time.Second, asked: [2]int{3, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mirror, origin := newServer(), newServer()
				var asked [2]int
				var namespaces []string
				for i, srv := range []*server{mirror, origin} {
					srv.plain = true
					m := srv.image(t, "app", "1", nil, layer)
					do := []func(http.ResponseWriter, *http.Request, int){c.mirror, c.origin}[i]
					srv.before = func(w http.ResponseWriter, r *http.Request) bool {
						if ns := r.URL.Query().Get("ns"); !slices.Contains(namespaces, fmt.Sprint(i, ns)) {
							namespaces = append(namespaces, fmt.Sprint(i, ns))
						}
						if !strings.HasSuffix(r.URL.Path, string(m.layers[0])) {
							return false
						}
						asked[i]++
						if do == nil {
							return false
						}
						do(w, r, asked[i])
						return true
					}
				}
				cfg := testConfig(t, memory{host: origin, "mirror.test": mirror})
				cfg.Registries = map[string]Registry{host: {Mirrors: []Mirror{{Host: "mirror.test"}}}}
				s, stop := start(t, cfg)
				defer stop()
				begin := time.Now()
				pull(t, s, host+"/app:1")
				if took := time.Since(begin); took > c.most {
					t.Errorf("took %v, want at most %v", took, c.most)
				}
				if asked != c.asked {
					t.Errorf("asked the mirror and the registry %v times, want %v", asked, c.asked)
				}
				for _, ns := range namespaces {
					if ns != "0"+host && ns != "1" {
						t.Errorf("namespaces %q", namespaces)
					}
				}
			})
		})
	}
}

// The limit is for all downloads together. A wait for it is no lack of progress.
func TestPullBandwidth(t *testing.T) {
	needRoot(t)
	one, two := archive(t, file("f", randomText(1<<20))), archive(t, file("g", randomText(1<<20)))
	for _, c := range []struct {
		limit       int64
		least, most time.Duration
	}{{0, 0, 0}, {512 << 10, 3 * time.Second, 4 * time.Second}, {100, 5 * time.Hour, 6 * time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer()
			srv.plain = true
			layers := append(srv.image(t, "one", "1", nil, one).layers, srv.image(t, "two", "1", nil, two).layers...)
			srv.before = func(w http.ResponseWriter, r *http.Request) bool {
				for i, l := range layers {
					if strings.HasSuffix(r.URL.Path, string(l)) {
						serveBlob(w, r, [][]byte{one, two}[i])
						return true
					}
				}
				return false
			}
			cfg := testConfig(t, memory{host: srv})
			cfg.PullBytesPerSecond = c.limit
			s, stop := start(t, cfg)
			defer stop()
			begin := time.Now()
			var wg sync.WaitGroup
			for _, name := range []string{"one", "two"} {
				wg.Go(func() { pull(t, s, host+"/"+name+":1") })
			}
			wg.Wait()
			if took := time.Since(begin); took < c.least || took > c.most {
				t.Errorf("%d bytes/s: took %v, want %v to %v", c.limit, took, c.least, c.most)
			}
		})
	}
}

// Layers that are there before another one of their image are kept over restarts, in time also
// without an orderly end.
func TestLayersOfInterruptedPulls(t *testing.T) {
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		m := srv.image(t, "app", "1", nil, archive(t, file("f", "x")), archive(t, file("d/implied", "x")), archive(t, file("g", "x")))
		srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, string(m.layers[2])) {
				return false
			}
			<-r.Context().Done()
			return true
		}
		s, stop := start(t, testConfig(t, memory{host: srv}))
		synctest.Wait() // until it has tidied up
		go func() { _, _ = s.PullImage(context.Background(), spec(host+"/app:1"), nil, nil) }()
		names := func() (synced int) {
			entries, err := os.ReadDir(s.path(ingestDir))
			must(t, err)
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), syncedPrefix) {
					synced++
				}
			}
			return synced
		}
		synctest.Wait()
		if n := names(); n != 0 {
			t.Errorf("%d layers are synced at once", n)
		}
		time.Sleep(tidyInterval)
		synctest.Wait()
		if n := names(); n != 2 {
			t.Errorf("%d layers are synced, want 2", n)
		}
		stop()
		// A layer whose record is damaged costs a download.
		damaged, err := filepath.Glob(s.path(ingestDir, syncedPrefix+"*", treeDir, "f"))
		must(t, err)
		must(t, os.Truncate(filepath.Join(damaged[0], "../..", metaFile), 3))
		s, stop = start(t, s.cfg)
		defer stop()
		if list, err := s.ListImages(t.Context(), nil); err != nil || len(list) > 0 {
			t.Errorf("%v, %v", list, err)
		}
		srv.before = nil
		asked := [3]int{}
		for i, l := range m.layers {
			asked[i] = srv.count(string(l))
		}
		pull(t, s, host+"/app:1")
		for i, want := range []int{1, 0, 1} {
			if n := srv.count(string(m.layers[i])) - asked[i]; n != want {
				t.Errorf("layer %d was requested %d times after the restart, want %d", i, n, want)
			}
		}
		empty(t, s, ingestDir)
		remove(t, s, host+"/app:1")
		if n := layerCount(t, s); n > 0 {
			t.Errorf("%d layers are left", n)
		}
	})
}

// Files of interrupted downloads go when they are old, when pulls lack space for a while, and at
// once when the disk is full.
func TestPartialFilesAreBounded(t *testing.T) {
	needRoot(t)
	layer := archive(t, file("f", randomText(1<<18)))
	for name, c := range map[string]struct {
		age     time.Duration // when the store starts again
		reserve func(free int64) int64
		least   time.Duration // the file is there after this time, and gone a minute later
	}{
		"just used":        {least: keepPartial},
		"old":              {age: 30 * time.Hour, least: keepAtStart},
		"from the future":  {age: -30 * time.Hour, least: keepPartial},
		"pulls lack space": {reserve: func(free int64) int64 { return free - margin/2 }, least: keepWhenFull},
		"disk is full":     {reserve: func(free int64) int64 { return free + margin }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer()
				s, file := interrupted(t, srv, layer)
				at := time.Now().Add(-c.age) // the bubble's clock is not the disk's
				must(t, os.Chtimes(file, at, at))
				if c.reserve != nil {
					var st unix.Statfs_t
					must(t, unix.Statfs(s.cfg.RootDir, &st))
					s.cfg.Reserve = c.reserve(int64(st.Bavail) * int64(st.Bsize)) //nolint:unconvert // 32 bits on some machines
				}
				_, stop := start(t, s.cfg)
				defer stop()
				if c.least > 0 {
					time.Sleep(c.least - time.Second)
					synctest.Wait()
					if _, err := os.Stat(file); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if _, err := os.Stat(file); err == nil {
					t.Error("the file is still there")
				}
			})
		})
	}
}

func TestSurplus(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(size int64, hours int) partial { return partial{size, now.Add(time.Duration(hours) * time.Hour)} }
	all := map[string]partial{"a": at(10, 3), "b": at(10, 2), "c": at(10, 1), "d": at(10, 0), "e": {size: 10}}
	for _, c := range []struct {
		deadline time.Duration
		most     int64
		want     string
	}{{0, 100, "d e"}, {0, 30, "d e"}, {0, 29, "c d e"}, {0, 5, "a b c d e"}, {2 * time.Hour, 100, "b c d e"}} {
		if got := strings.Join(surplus(all, now.Add(c.deadline), c.most), " "); got != c.want {
			t.Errorf("deadline %v, at most %d bytes: %s, want %s", c.deadline, c.most, got, c.want)
		}
	}
}

// Two images with one layer download it once, also if the layer depends on what is below it and so
// is unpacked for each.
func TestDependentLayerIsDownloadedOnce(t *testing.T) {
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		shared := archive(t, file("d/implied", randomText(1<<17)))
		m := srv.image(t, "a", "1", nil, archive(t, dir("d"), file("a", "x")), shared)
		srv.image(t, "b", "1", nil, archive(t, dir("d"), file("b", "x")), shared)
		free := make(chan struct{})
		srv.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, string(m.layers[1])) {
				<-free
			}
			return false
		}
		s, stop := start(t, testConfig(t, memory{host: srv}))
		defer stop()
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			wg.Go(func() { pull(t, s, host+"/"+name+":1") })
		}
		synctest.Wait()
		close(free)
		wg.Wait()
		if n := srv.count(string(m.layers[1])); n != 1 {
			t.Errorf("the layer was requested %d times", n)
		}
		if n := layerCount(t, s); n != 4 {
			t.Errorf("%d layers, want 4", n)
		}
		empty(t, s, ingestDir)
	})
}
