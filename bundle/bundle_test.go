package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmgr"
)

func TestBuild(t *testing.T) {
	pod := func(name string) podmgr.ManifestFile {
		return podmgr.ManifestFile{Name: name + ".yaml", Data: fmt.Appendf(nil, podYAML, name)}
	}
	b, err := Build([]podmgr.ManifestFile{pod("b"), pod("a")}, Rollout{Percent: 10, HealthyWithin: metav1.Duration{Duration: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Build([]podmgr.ManifestFile{pod("a"), pod("b")}, Rollout{Percent: 10, HealthyWithin: metav1.Duration{Duration: time.Minute}})
	if err != nil || other.Digest != b.Digest {
		t.Errorf("the order of files changes the digest: %v", err)
	}
	archive, err := b.Archive()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(archive, make([]byte, 1024)) {
		t.Error("the archive has no end")
	}
	file := filepath.Join(t.TempDir(), "b.tar")
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	// As a directory, which tar -x makes of the archive.
	dir := t.TempDir()
	r := tar.NewReader(bytes.NewReader(archive))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		var data bytes.Buffer
		_, _ = data.ReadFrom(r)
		path := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{file, dir} {
		got, err := Open(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got.Digest != b.Digest || got.Rollout != b.Rollout || len(got.Files) != 2 || got.Files[0].Name != "a.yaml" {
			t.Errorf("%s: %+v, want %+v", path, got, b)
		}
		s, err := got.Snapshot("N1")
		if err != nil || len(s.Pods) != 2 || s.Pods[0].Name != "a-n1" {
			t.Errorf("%s: %v, %v", path, s.Pods, err)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		file, data string
		rollout    Rollout
		want       string
	}{
		"no pods":       {"a.yaml", "", Rollout{}, "no pods"},
		"secret":        {"a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", Rollout{}, "default/s: kind: Secret: want no Secrets"},
		"field":         {"a.yaml", strings.ReplaceAll(fmt.Sprintf(podYAML, "a"), "image:", "imag:"), Rollout{}, "a.yaml:4 (default/a): spec.containers[0].imag"},
		"UID":           {"a.yaml", strings.ReplaceAll(fmt.Sprintf(podYAML, "a"), "{name: a}", "{name: a, uid: x}"), Rollout{}, "metadata.uid: is set"},
		"ConfigMaps":    {"a.yaml", strings.Repeat("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n---\n", 2) + fmt.Sprintf(podYAML, "a"), Rollout{}, "ConfigMap default/m is there twice"},
		"name":          {"../a.yaml", fmt.Sprintf(podYAML, "a"), Rollout{}, "without directories"},
		"extension":     {"a.txt", fmt.Sprintf(podYAML, "a"), Rollout{}, "ends in .yaml"},
		"percent":       {"a.yaml", fmt.Sprintf(podYAML, "a"), Rollout{Percent: 101}, "percent: 101: want 1 to 100"},
		"healthyWithin": {"a.yaml", fmt.Sprintf(podYAML, "a"), Rollout{HealthyWithin: metav1.Duration{Duration: 2 * time.Hour}}, "healthyWithin: 2h0m0s"},
	} {
		if _, err := Build([]podmgr.ManifestFile{{Name: tc.file, Data: []byte(tc.data)}}, tc.rollout); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// packed is a layer with these entries, whose content is zeros.
func packed(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileLayers(t *testing.T) {
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}
	}
	var many, large []tar.Header
	for i := range maxFiles + 1 {
		many = append(many, file(fmt.Sprintf("%d.yaml", i), 0))
	}
	for i := range 4 {
		large = append(large, file(fmt.Sprintf("%d.yaml", i), maxFile))
	}
	good := packed(t, file("a.yaml", 1000))
	for name, tc := range map[string]struct {
		layer []byte
		want  string
	}{
		"absolute":  {packed(t, file("/etc/a.yaml", 1)), "without directories"},
		"parent":    {packed(t, file("../a.yaml", 1)), "without directories"},
		"directory": {packed(t, tar.Header{Typeflag: tar.TypeDir, Name: "d"}), "want files only"},
		"link":      {packed(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a.yaml", Linkname: "/etc/shadow"}), "want files only"},
		"hard link": {packed(t, tar.Header{Typeflag: tar.TypeLink, Name: "a.yaml", Linkname: "/etc/shadow"}), "want files only"},
		"device":    {packed(t, tar.Header{Typeflag: tar.TypeChar, Name: "a.yaml"}), "want files only"},
		"archive":   {packed(t, file("a.tar.gz", 1)), "ends in .yaml"},
		"twice":     {packed(t, file("a.yaml", 1), file("a.yaml", 2)), "is there twice"},
		"many":      {packed(t, many...), "more than 1000 files"},
		"one large": {packed(t, file("a.yaml", maxFile+1)), "want at most"},
		"all large": {packed(t, large...), "want at most"},
		"truncated": {good[:len(good)-10], "layer"},
		"text":      {[]byte("apiVersion: v1"), "layer"},
	} {
		files, err := unpack(tc.layer)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %d files, %v; want %q", name, len(files), err, tc.want)
		}
	}
}

func TestHostileArtifacts(t *testing.T) {
	b := manifests(t, "a")
	blobs := func(d ocispec.Descriptor) ([]byte, error) {
		for _, p := range b.blobs() {
			if p.mediaType == d.MediaType {
				return p.data, nil
			}
		}
		return nil, errors.New("no such blob")
	}
	for name, tc := range map[string]struct {
		change func(*ocispec.Manifest)
		want   string
	}{
		"an image":    {func(m *ocispec.Manifest) { m.ArtifactType = "" }, "artifactType"},
		"layers":      {func(m *ocispec.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, "layers: 2"},
		"no layers":   {func(m *ocispec.Manifest) { m.Layers = nil }, "layers: 0"},
		"media type":  {func(m *ocispec.Manifest) { m.Layers[0].MediaType = "text/plain" }, "layers[0].mediaType"},
		"size":        {func(m *ocispec.Manifest) { m.Layers[0].Size = 1 << 40 }, "layers[0].size"},
		"config size": {func(m *ocispec.Manifest) { m.Config.Size = -1 }, "config.size"},
		"digest":      {func(m *ocispec.Manifest) { m.Config.Digest = "sha256:../../etc" }, "config.digest"},
		"algorithm":   {func(m *ocispec.Manifest) { m.Config.Digest = digest.SHA512.FromString("x") }, "config.digest"},
		"content":     {func(m *ocispec.Manifest) { m.Layers[0].Digest = digest.FromString("x") }, errDigest.Error()},
	} {
		var m ocispec.Manifest
		if err := json.Unmarshal(b.manifest, &m); err != nil {
			t.Fatal(err)
		}
		tc.change(&m)
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(digest.FromBytes(text).String(), text, blobs); err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrInvalid) == (name == "content") {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := open(digest.FromString("x").String(), b.manifest, blobs); !errors.Is(err, errDigest) {
		t.Errorf("another digest: %v", err)
	}
}

// FuzzRead reads archives, whose bundles are valid or an error.
func FuzzRead(f *testing.F) {
	archive, err := manifests(f, "a").Archive()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(archive)
	f.Add(archive[:len(archive)/2])
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		b, err := Read(bytes.NewReader(archive))
		if err != nil {
			return
		}
		if b.Digest != digest.FromBytes(b.manifest).String() {
			t.Errorf("digest %s of a manifest with another one", b.Digest)
		}
		for _, f := range b.Files {
			if f.Name != filepath.Base(f.Name) || !isManifest(f.Name) {
				t.Errorf("file %q", f.Name)
			}
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(packed(f, tar.Header{Typeflag: tar.TypeReg, Name: "a.yaml", Size: 3}))
	f.Add(packed(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "a.yaml", Linkname: "b"}))
	f.Fuzz(func(t *testing.T, layer []byte) {
		files, err := unpack(layer)
		if err != nil {
			return
		}
		size := 0
		for _, file := range files {
			size += len(file.Data)
		}
		if len(files) > maxFiles || size > maxUnpacked {
			t.Errorf("%d files with %d bytes", len(files), size)
		}
	})
}

// Nodes of a smaller part of the fleet are also nodes of each larger one, and parts are about as
// large as they say.
func TestPlace(t *testing.T) {
	const nodes = 10_000
	within := 0
	for i := range nodes {
		p := place(fmt.Sprintf("edge-%d", i))
		if p < 0 || p > 99 {
			t.Fatalf("place %d", p)
		}
		if p < 10 {
			within++
		}
	}
	if within < nodes*8/100 || within > nodes*12/100 {
		t.Errorf("%d of %d nodes take a bundle for 10 %%", within, nodes)
	}
	if place("Edge-1") != place("edge-1") {
		t.Error("names of nodes have no case")
	}
}
