//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/testrun"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("unpacks owners, devices and trusted attributes: needs root")
	}
}

// entry is one of an archive: a header, and the content of a file.
type entry struct {
	tar.Header
	text string
}

func file(name, text string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1000, 0)}, text}
}

func dir(name string) entry {
	return entry{Header: tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(2000, 0)}}
}

func symlink(name, to string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}}
}

func hardlink(name, to string) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}}
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		must(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.text)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

// server is a registry in memory.
type server struct {
	mu        sync.Mutex
	manifests map[string][]byte // by repository and tag or digest
	types     map[string]string
	blobs     map[digest][]byte
	asked     map[string]int // by method and path
	plain     bool           // layers are not compressed
	// before is asked first, and reports whether it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newServer() *server {
	return &server{manifests: map[string][]byte{}, types: map[string]string{}, blobs: map[digest][]byte{}, asked: map[string]int{}}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	before := s.before
	s.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	if r.URL.Path == "/v2/" {
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if repo, ref, ok := strings.Cut(path, "/manifests/"); ok {
		b, ok := s.manifests[repo+" "+ref]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", s.types[repo+" "+ref])
		_, _ = w.Write(b)
		return
	}
	_, ref, _ := strings.Cut(path, "/blobs/")
	b, ok := s.blobs[digest(ref)]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	serveBlob(w, r, b)
}

func serveBlob(w http.ResponseWriter, r *http.Request, b []byte) {
	first := 0
	if v := r.Header.Get("Range"); v != "" {
		first, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(v, "bytes="), "-"))
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, len(b)-1, len(b)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b)-first))
	if first > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(b[first:])
}

func (s *server) count(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, c := range s.asked {
		if strings.Contains(p, part) {
			n += c
		}
	}
	return n
}

func (s *server) put(b []byte) descriptor {
	d := digestOf(b)
	s.blobs[d] = b
	return descriptor{Digest: d, Size: int64(len(b))}
}

// made is what the server has of an image.
type made struct {
	id, manifest digest
	layers       []digest // of the blobs
	doc          []byte
}

// image puts an image into the registry whose layers are such archives.
func (s *server) image(t testing.TB, repo, tag string, extra map[string]any, layers ...[]byte) made {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out made
	config := map[string]any{"User": "1000:7", "Env": []string{"A=b"}, "Cmd": []string{"/run"}}
	top := map[string]any{"os": "linux", "architecture": "amd64", "config": config}
	for k, v := range extra {
		top[k] = v
	}
	diffs, descs := []string{}, []map[string]any{}
	for _, l := range layers {
		diffs = append(diffs, string(digestOf(l)))
		b := l
		if !s.plain {
			b = gzipped(t, l)
		}
		d := s.put(b)
		out.layers = append(out.layers, d.Digest)
		descs = append(descs, map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": d.Digest, "size": d.Size})
	}
	top["rootfs"] = map[string]any{"type": "layers", "diff_ids": diffs}
	c := s.put(asJSON(t, top))
	out.id = c.Digest
	m := asJSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest, "layers": descs, "annotations": map[string]string{"k": "v"},
		"config": map[string]any{"mediaType": ociConfig, "digest": c.Digest, "size": c.Size},
	})
	out.manifest, out.doc = s.offer(repo, tag, ociManifest, m), m
	return out
}

func (s *server) offer(repo, tag, mediaType string, m []byte) digest {
	d := digestOf(m)
	for _, ref := range []string{tag, string(d)} {
		s.manifests[repo+" "+ref], s.types[repo+" "+ref] = m, mediaType
	}
	return d
}

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

// memory carries requests to handlers, by host, without a network.
type memory map[string]http.Handler

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	h := m[r.URL.Host]
	if h == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("no route to %s", r.URL.Host)}
	}
	pr, pw := io.Pipe()
	w := &pipeWriter{pw: pw, header: http.Header{}, ready: make(chan struct{}), code: http.StatusOK}
	go func() {
		defer func() { _ = pw.Close() }()
		defer w.flush()
		h.ServeHTTP(w, r)
	}()
	stop := context.AfterFunc(r.Context(), func() { _ = pr.CloseWithError(context.Cause(r.Context())) })
	select {
	case <-w.ready:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	length := int64(-1)
	if v := w.header.Get("Content-Length"); v != "" {
		length, _ = strconv.ParseInt(v, 10, 64)
	}
	return &http.Response{
		StatusCode: w.code, Header: w.header, Request: r, ContentLength: length, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: &pipeBody{pr, stop},
	}, nil
}

type pipeBody struct {
	*io.PipeReader
	stop func() bool
}

func (p *pipeBody) Close() error {
	p.stop()
	return p.PipeReader.Close()
}

type pipeWriter struct {
	pw     *io.PipeWriter
	header http.Header
	code   int
	once   sync.Once
	ready  chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }
func (w *pipeWriter) flush()              { w.once.Do(func() { close(w.ready) }) }
func (w *pipeWriter) WriteHeader(code int) {
	w.code = code
	w.flush()
}
func (w *pipeWriter) Write(b []byte) (int, error) {
	w.flush()
	return w.pw.Write(b)
}

const host = "registry.test"

// testConfig is that of a store whose registry is in memory.
func testConfig(t testing.TB, hosts memory) Config {
	t.Helper()
	needRoot(t)
	return Config{
		RootDir: filepath.Join(t.TempDir(), "images"), OS: "linux", Architecture: "amd64", Reserve: 1,
		transport: func(Endpoint) http.RoundTripper { return hosts },
	}
}

// start runs a store until the test ends, or stop is called.
func start(t testing.TB, cfg Config) (s *Store, stop func()) {
	t.Helper()
	if tt, ok := t.(*testing.T); ok && cfg.Log == nil {
		cfg.Log = zaptest.NewLogger(tt)
	}
	s, err := New(cfg)
	must(t, err)
	stop = testrun.Start(t, s.Run)
	must(t, s.await(context.Background()))
	return s, stop
}

func spec(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }

func pull(t testing.TB, s *Store, name string) string {
	t.Helper()
	id, err := s.PullImage(context.Background(), spec(name), nil, nil)
	must(t, err)
	return id
}

func imageOf(t testing.TB, s *Store, name string) *runtimeapi.Image {
	t.Helper()
	st, err := s.ImageStatus(context.Background(), spec(name), false)
	must(t, err)
	return st.GetImage()
}

// emptied fails if a running store has files in its trash after it has emptied the trash once more: its
// own first sweep may have moved files there, for whose deletion no caller waits.
func emptied(t testing.TB, s *Store) {
	t.Helper()
	done := make(chan struct{})
	s.mu.Lock()
	s.purged = append(s.purged, done)
	s.mu.Unlock()
	select {
	case s.purge <- struct{}{}:
	default:
	}
	<-done
	empty(t, s, trashDir)
}

// empty reports an error if there is anything in a directory below the store's.
func empty(t testing.TB, s *Store, name string) {
	t.Helper()
	entries, err := os.ReadDir(s.path(name))
	must(t, err)
	for _, e := range entries {
		t.Errorf("%s has %s", name, e.Name())
	}
}
