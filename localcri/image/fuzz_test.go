//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// Whatever a layer's archive says, nothing outside its directory changes, it stays
// in its bounds, and its list of files is right.
func FuzzLayer(f *testing.F) {
	for _, entries := range [][]entry{
		{dir("a"), file("a/f", "x"), hardlink("h", "a/f"), symlink("l", "/etc"), file(".wh.g", "")},
		{symlink("a", ".."), file("a/secret", "x")},
		{file("a/b/c", "x"), file("a/.wh..wh..opq", ""), hardlink("h", "below")},
		{dir("d"), file("d/f", "x"), file("d", "y"), dir("d")},
	} {
		b := archive(f, entries...)
		f.Add(b)
		f.Add(gzipped(f, b))
	}
	z, err := zstd.NewWriter(nil)
	must(f, err)
	f.Add(z.EncodeAll(archive(f, file("f", "x")), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		needRoot(t)
		top := t.TempDir()
		root := filepath.Join(top, "tree")
		must(t, os.Mkdir(root, 0o755))
		must(t, os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o600))
		plain, done, err := decompress(bytes.NewReader(b))
		if err == nil {
			defer done()
			lim := unpackLimits{bytes: 1 << 20, entries: 100, space: func() error { return nil }}
			var out *unpacked
			out, err = unpack(context.Background(), root, filepath.Join(top, "times"), &bounded{r: plain, left: 1 << 20, what: "layer"}, lim)
			if err == nil {
				_ = complete(root, out, nil, lim)
			}
		}
		if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil || string(b) != "secret" {
			t.Errorf("the file outside is %q, %v", b, err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(top, "secret"), &st); err != nil || st.Nlink != 1 {
			t.Errorf("the file outside has %d names, %v", st.Nlink, err)
		}
		if names, err := os.ReadDir(top); err != nil || len(names) != 2 {
			t.Errorf("beside the tree: %v, %v", names, err)
		}
	})
}

// A name that is taken is relative, clean and below the root.
func FuzzName(f *testing.F) {
	for _, n := range []string{"a", "a/b", "./a", "../a", "/a", "a/../b", ".wh.a", ".wh...", "a/.wh..wh..opq", ".wh..wh.x", "", "/", "a//b/"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		_, path, err := classify(&tar.Header{Name: name, Typeflag: tar.TypeReg})
		if err == nil && path != "" && (!filepath.IsLocal(path) || filepath.Clean(path) != path) {
			t.Errorf("%q becomes %q", name, path)
		}
	})
}

// Documents are read in bounded time and memory, and those that are taken keep
// their promises.
func FuzzManifest(f *testing.F) {
	srv := newServer()
	m := srv.image(f, "app", "1", nil, []byte("layer"))
	f.Add(m.doc)
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"digest":"x","platform":{"os":"linux","architecture":"arm","variant":"v7"}}]}`))
	f.Add([]byte(`{"schemaVersion":2,"layers":null,"annotations":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b, ociManifest)
		if err != nil {
			return
		}
		_, _ = choose(oci.Platform{OS: "linux", Architecture: "arm64", Variant: ""}, m.Manifests.items)
		if m.isIndex() {
			return
		}
		for _, l := range m.Layers.items {
			if l.Digest.check() != nil || l.Size < 0 || !layerTypes[l.MediaType] {
				t.Errorf("taken: %v", l)
			}
		}
	})
}

// Configurations too; what is read out of one is the same each time.
func FuzzConfig(f *testing.F) {
	srv := newServer()
	m := srv.image(f, "app", "1", map[string]any{"variant": "v1"}, []byte("layer"))
	f.Add(srv.blobs[m.id])
	f.Add([]byte(`{"rootfs":{"type":"layers","diff_ids":null},"config":{"User":"a:b","Volumes":{"/x":{}},"Labels":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseConfig(b)
		if err != nil {
			return
		}
		for _, d := range chainIDs(c.RootFS.DiffIDs.items) {
			if err := d.check(); err != nil {
				t.Error(err)
			}
		}
		user(c.Config.User)
		c.public()
	})
}

// Records of a damaged disk are refused, or are those of an image.
func FuzzRecord(f *testing.F) {
	srv := newServer()
	m := srv.image(f, "app", "1", nil, []byte("layer"))
	b, err := json.Marshal(&record{ID: m.id, Config: srv.blobs[m.id], Layers: []string{m.id.hex()}, Tags: map[string]uint64{"a": 1}})
	must(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseMeta(b, strings.Repeat("0", 64))
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		if digestOf(r.Config) != r.ID {
			t.Errorf("a record of %s has another config", r.ID)
		}
	})
}

// What servers put into headers.
func FuzzHeaders(f *testing.F) {
	f.Add("bytes 5-9/10")
	f.Add("120")
	f.Add("Fri, 31 Dec 1999 23:59:59 GMT")
	f.Fuzz(func(t *testing.T, v string) {
		if first, total := contentRange(v); first < -1 || total < -1 {
			t.Errorf("%d of %d", first, total)
		}
		if d := retryAfter(v, time.Unix(0, 0)); d < -1 {
			t.Errorf("%v", d)
		}
	})
}

// A stream that wants more memory or gives more bytes than allowed ends.
func TestBombs(t *testing.T) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithWindowSize(64<<20))
	must(t, err)
	_, err = io.Copy(z, &zeros{left: 80 << 20})
	must(t, err)
	must(t, z.Close())
	for name, in := range map[string][]byte{"zstd window": b.Bytes(), "gzip": gzipped(t, make([]byte, 10<<20))} {
		r, done, err := decompress(bytes.NewReader(in))
		if err == nil {
			_, err = io.Copy(io.Discard, &bounded{r: r, left: 1 << 20, what: "layer"})
			done()
		}
		if err == nil {
			t.Errorf("%s: read to its end", name)
		}
	}
}
