//go:build !race && linux

package hostile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// archive is an archive of images as "docker save" writes it, with one layer.
func archive(layer func(t *tar.Writer) error) func(w *tar.Writer) error {
	return func(w *tar.Writer) error {
		var l bytes.Buffer
		t := tar.NewWriter(&l)
		if err := layer(t); err != nil {
			return err
		}
		if err := t.Close(); err != nil {
			return err
		}
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/x"}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(l.Bytes()))}},
		})
		if err != nil {
			return err
		}
		manifest := `[{"Config":"config.json","RepoTags":["localhost/hostile:1"],"Layers":["layer.tar"]}]`
		for name, b := range map[string][]byte{"config.json": config, "layer.tar": l.Bytes(), "manifest.json": []byte(manifest)} {
			if err := member(w, name, b); err != nil {
				return err
			}
		}
		return nil
	}
}

// member writes a file of an archive.
func member(w *tar.Writer, name string, b []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// outside is a file that a layer tries to write.
const outside = "/tmp/nodewright-hostile-canary"

// imageAuthors are archives of somebody who makes images, and what the agent says of them.
var imageAuthors = []struct {
	name  string
	write func(w *tar.Writer) error
	want  string // in the error
}{
	{"300 links to 900 KB", func(w *tar.Writer) error {
		target := strings.Repeat("a/", 450_000)
		for i := range 300 {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint("l", i), Typeflag: tar.TypeSymlink, Linkname: target, Format: tar.FormatPAX}); err != nil {
				return err
			}
		}
		return nil
	}, "invalid: "},
	{"20,000 files", func(w *tar.Writer) error {
		for i := range 20_000 {
			if err := member(w, fmt.Sprint(i), nil); err != nil {
				return err
			}
		}
		return nil
	}, "limit exceeded: "},
	{"a manifest of 20,000 levels", func(w *tar.Writer) error {
		return member(w, "manifest.json", []byte(strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)))
	}, "invalid: "},
	{"a manifest of 100 MB", func(w *tar.Writer) error {
		return member(w, "manifest.json", bytes.Repeat([]byte(" "), 100<<20))
	}, "limit exceeded: "},
	{"an attribute that no file system takes", archive(func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Name: "x", Mode: 0o600, PAXRecords: map[string]string{"SCHILY.xattr.user.big": strings.Repeat("x", 70_000)}})
	}), "limit exceeded: "},
	{"a file through a link out of the layer", archive(func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: "d", Typeflag: tar.TypeSymlink, Linkname: filepath.Dir(outside)}); err != nil {
			return err
		}
		return member(w, "d/"+filepath.Base(outside), []byte("x"))
	}), ""},
	{"10,000 directories in one another", archive(func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Name: strings.Repeat("d/", 10_000), Typeflag: tar.TypeDir, Mode: 0o700, Format: tar.FormatPAX})
	}), "invalid: "},
}

// Whoever makes an image costs the agent little, is told that the image is wrong, and keeps no
// neighbour from its probes.
func TestImageAuthors(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short: runs containers")
	}
	m := newOwnMachine(t)
	m.write("manifests/neighbour.yaml", probed("neighbour"))
	m.start()
	since := m.untilReady("neighbour")
	for _, a := range imageAuthors {
		r, w := io.Pipe()
		go func() {
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			tw := tar.NewWriter(z)
			err := a.write(tw)
			_ = tw.Close()
			_ = z.Close()
			_ = w.CloseWithError(err)
		}()
		_, err := m.api.LoadImages(t.Context(), r, "")
		_ = r.Close() // the agent may have refused what comes later
		t.Logf("%s: %v; peak %d MiB", a.name, err, m.peak()>>20)
		if (err == nil) != (a.want == "") || err != nil && !strings.Contains(err.Error(), a.want) {
			t.Errorf("%s: %v, want %q", a.name, err, a.want)
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		m.must(os.Remove(outside))
		t.Error("a layer has written outside of itself")
	}
	if now := m.untilReady("neighbour"); !now.Equal(since) {
		t.Errorf("the neighbour is ready since %v, and was since %v", now, since)
	}
	if peak := m.peak(); peak > maxMemory {
		t.Errorf("peak %d MiB; want at most %d", peak>>20, maxMemory>>20)
	}
	m.stop()
}
