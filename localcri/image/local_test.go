//go:build linux

package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// dockerArchive is what docker save writes.
func dockerArchive(t testing.TB, names []string, layers ...[]byte) []byte {
	t.Helper()
	diffs, paths, entries := []string{}, []string{}, []entry{}
	for _, l := range layers {
		d := digestOf(l)
		diffs = append(diffs, string(d))
		paths = append(paths, d.hex()+"/layer.tar")
		entries = append(entries, dir(d.hex()), file(d.hex()+"/layer.tar", string(l)))
	}
	config := asJSON(t, map[string]any{"os": "linux", "architecture": "amd64", "rootfs": map[string]any{"type": "layers", "diff_ids": diffs}})
	m := asJSON(t, []any{map[string]any{"Config": "config.json", "RepoTags": names, "Layers": paths}})
	return archive(t, append(entries, file("config.json", string(config)), file("manifest.json", string(m)))...)
}

// ociLayout is the files of an OCI layout.
func ociLayout(t testing.TB, annotations map[string]string, layers ...[]byte) map[string][]byte {
	t.Helper()
	srv := newServer()
	m := srv.image(t, "app", "1", nil, layers...)
	files := map[string][]byte{
		"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": asJSON(t, map[string]any{"schemaVersion": 2, "manifests": []any{
			map[string]any{"mediaType": ociManifest, "digest": m.manifest, "size": len(m.doc), "annotations": annotations},
		}}),
		"blobs/sha256/" + m.manifest.hex(): m.doc,
	}
	for d, b := range srv.blobs {
		files["blobs/sha256/"+d.hex()] = b
	}
	return files
}

func tarred(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var entries []entry
	for _, name := range sortedKeys(files) {
		entries = append(entries, file(name, string(files[name])))
	}
	return archive(t, entries...)
}

func writeAll(t testing.TB, top string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(top, name), b, 0o644))
	}
}

// Images come out of archives of all kinds, and out of layouts.
func TestImport(t *testing.T) {
	one, two := archive(t, file("f", "one")), archive(t, file("g", "two"))
	layout := t.TempDir()
	writeAll(t, layout, ociLayout(t, map[string]string{annotationRef: "v1"}, one, two))
	for name, c := range map[string]struct {
		archive []byte
		opts    ImportOptions
		want    string
	}{
		"docker":            {archive: dockerArchive(t, []string{"app:1"}, one, two), want: "docker.io/library/app:1"},
		"docker, with gzip": {archive: gzipped(t, dockerArchive(t, []string{"registry.test/app:1"}, one, two)), want: "registry.test/app:1"},
		"docker, no name":   {archive: dockerArchive(t, nil, one, two), opts: ImportOptions{Name: "x"}, want: "docker.io/library/x:latest"},
		"OCI":               {archive: tarred(t, ociLayout(t, map[string]string{annotationName: "registry.test/app:2"}, one, two)), want: "registry.test/app:2"},
		"OCI, tag":          {archive: tarred(t, ociLayout(t, map[string]string{annotationRef: "v1"}, one, two)), opts: ImportOptions{Name: "registry.test/app", Pinned: true}, want: "registry.test/app:v1"},
		"layout":            {opts: ImportOptions{Name: "registry.test/app"}, want: "registry.test/app:v1"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := start(t, testConfig(t, nil))
			var ids []string
			var err error
			if c.archive != nil {
				ids, err = s.Import(t.Context(), bytes.NewReader(c.archive), c.opts)
			} else {
				ids, err = s.ImportLayout(t.Context(), layout, c.opts)
			}
			if err != nil || len(ids) != 1 {
				t.Fatalf("%v, %v", ids, err)
			}
			i := imageOf(t, s, ids[0])
			if !slices.Equal(i.GetRepoTags(), []string{c.want}) || i.GetPinned() != c.opts.Pinned {
				t.Errorf("%v, want %s", i, c.want)
			}
			root, err := s.Use(t.Context(), c.want, "c1")
			must(t, err)
			if got := look(t, root.Layers[0]); len(root.Layers) != 2 || got["g"] != "two" {
				t.Errorf("%v: %v", root, got)
			}
			empty(t, s, ingestDir)
		})
	}
}

// Archives and layouts that lie are refused, and leave nothing.
func TestHostileArchives(t *testing.T) {
	one := archive(t, file("f", "one"))
	good := ociLayout(t, map[string]string{annotationName: "registry.test/app:1"}, one)
	var layerName string
	for name := range good {
		if strings.HasPrefix(name, "blobs/") && bytes.HasPrefix(good[name], gzipMagic) {
			layerName = name
		}
	}
	changed := map[string][]byte{}
	for n, b := range good {
		changed[n] = b
	}
	changed[layerName] = gzipped(t, archive(t, file("f", "two")))
	for name, c := range map[string]struct {
		archive []byte
		code    codes.Code
	}{
		"nothing":               {nil, codes.InvalidArgument},
		"noise":                 {bytes.Repeat([]byte("noise"), 1000), codes.InvalidArgument},
		"no image":              {archive(t, file("f", "x")), codes.InvalidArgument},
		"path out of it":        {archive(t, file("../manifest.json", "[]")), codes.InvalidArgument},
		"link to the machine":   {archive(t, symlink("manifest.json", "/etc/passwd")), codes.InvalidArgument},
		"links in a circle":     {archive(t, symlink("manifest.json", "a"), symlink("a", "manifest.json")), codes.InvalidArgument},
		"config of the machine": {archive(t, file("manifest.json", `[{"Config":"../../../etc/passwd","Layers":["/etc/shadow"]}]`)), codes.InvalidArgument},
		"many images":           {archive(t, file("manifest.json", "["+strings.Repeat("{},", 1000)+"{}]")), codes.InvalidArgument},
		"index of noise":        {archive(t, file("index.json", "x")), codes.InvalidArgument},
		"another layer":         {tarred(t, changed), codes.NotFound},
		"hostile layer":         {dockerArchive(t, []string{"app:1"}, archive(t, file("../f", "x"))), codes.InvalidArgument},
		"bad name":              {dockerArchive(t, []string{"UPPER"}, one), codes.InvalidArgument},
		"targets to remember":   {archive(t, slices.Repeat([]entry{symlink("l", strings.Repeat("a/", 2000))}, 6000)...), codes.InvalidArgument},
		"cut":                   {dockerArchive(t, []string{"app:1"}, one)[:2000], codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := start(t, testConfig(t, nil))
			ids, err := s.Import(t.Context(), bytes.NewReader(c.archive), ImportOptions{})
			if status.Code(err) != c.code || len(ids) > 0 {
				t.Errorf("%v, %v; want %v", ids, err, c.code)
			}
			empty(t, s, ingestDir)
		})
	}
	t.Run("layout with links", func(t *testing.T) {
		top := t.TempDir()
		writeAll(t, top, good)
		secret := filepath.Join(t.TempDir(), "blob")
		must(t, os.Rename(filepath.Join(top, layerName), secret))
		must(t, os.Symlink(secret, filepath.Join(top, layerName)))
		s, _ := start(t, testConfig(t, nil))
		if ids, err := s.ImportLayout(t.Context(), top, ImportOptions{}); err == nil {
			t.Errorf("%v", ids)
		}
	})
	t.Run("layout with another layer", func(t *testing.T) {
		top := t.TempDir()
		writeAll(t, top, changed)
		s, _ := start(t, testConfig(t, nil))
		if ids, err := s.ImportLayout(t.Context(), top, ImportOptions{}); status.Code(err) != codes.DataLoss {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

// What an archive has the store remember is bounded, however long the targets of its links
// are: those that are no names of files are not kept.
func TestLongLinksAreNotRemembered(t *testing.T) {
	long := strings.Repeat("a/", 400_000) + "x"
	var entries []entry
	for i := range 50 {
		entries = append(entries, symlink(fmt.Sprint("s", i), long), hardlink(fmt.Sprint("h", i), long))
	}
	entries = append(entries, symlink("up", "../x"), symlink("root", "/etc/passwd"), symlink("d/in", "../f"))
	s, _ := start(t, testConfig(t, nil))
	a, err := s.spool(t.Context(), t.TempDir(), bytes.NewReader(archive(t, entries...)))
	if err != nil || !maps.Equal(a.links, map[string]string{"d/in": "f"}) {
		t.Errorf("%.200v, %v; want the link d/in alone", a, err)
	}
}

// The layers of an image are bounded together.
func TestImageIsBounded(t *testing.T) {
	layers := [][]byte{archive(t, file("a", strings.Repeat("x", 600))), archive(t, file("b", strings.Repeat("x", 600)))}
	for most, want := range map[int64]codes.Code{1199: codes.InvalidArgument, 1200: codes.OK} {
		cfg := testConfig(t, nil)
		cfg.MaxImageBytes = most
		s, _ := start(t, cfg)
		if _, err := s.Import(t.Context(), bytes.NewReader(dockerArchive(t, []string{"app:1"}, layers...)), ImportOptions{}); status.Code(err) != want {
			t.Errorf("at most %d bytes: %v, want %v", most, err, want)
		}
	}
}

// What is in the preload directory is there at the start and pinned; what cannot be
// read costs nobody else anything, and what was read is not read again.
func TestPreload(t *testing.T) {
	top := t.TempDir()
	writeAll(t, top, map[string][]byte{
		"a.tar": dockerArchive(t, []string{"a:1"}, archive(t, file("f", "a"))), "b.tar.gz": gzipped(t, dockerArchive(t, []string{"b:1"}, archive(t, file("f", "b")))),
		"bad.tar": []byte("noise"), "note.txt": []byte("x"), "c.tar.bak": []byte("noise"),
	})
	writeAll(t, filepath.Join(top, "layout"), ociLayout(t, map[string]string{annotationName: "c:1"}, archive(t, file("f", "c"))))
	must(t, os.Symlink("/dev/zero", filepath.Join(top, "zero.tar")))
	cfg := testConfig(t, nil)
	cfg.PreloadDir = top
	s, stop := start(t, cfg)
	check := func() {
		t.Helper()
		<-s.preloaded
		for _, name := range []string{"a:1", "b:1", "c:1"} {
			if i := imageOf(t, s, name); !i.GetPinned() {
				t.Errorf("%s: %v", name, i)
			}
		}
	}
	check()
	stop()
	var spools atomic.Int32
	cfg.step = func(string) { spools.Add(1) }
	s, _ = start(t, cfg)
	check()
	if n := spools.Load(); n > 1 { // the layout's record alone
		t.Errorf("%d steps at the second start", n)
	}
	remove(t, s, "a:1")
	var mark preloadMark
	b, err := s.marks.Read("preload-" + digestOf([]byte("a.tar")).hex())
	if err != nil || json.Unmarshal(b, &mark) != nil || len(mark.Images) != 1 {
		t.Errorf("%s, %v", b, err)
	}
}

func TestImportOfNoArchive(t *testing.T) {
	s, _ := start(t, testConfig(t, nil))
	for name, text := range map[string]string{"an empty file": "", "a manifest": "apiVersion: v1\nkind: Pod\n", "long garbage": strings.Repeat("x", 4096)} {
		if _, err := s.Import(t.Context(), strings.NewReader(text), ImportOptions{}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no archive of images") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
