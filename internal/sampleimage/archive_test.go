package sampleimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func sample() Image {
	return Image{Name: "localhost/a/b:2", Architecture: "amd64", Entrypoint: []string{"/bin/x"}, Ports: []string{"80/tcp"},
		Files: []File{{Path: "/bin/x", Mode: 0o755, Data: []byte("program")}, {Path: "/tmp/", Mode: 0o1777}, {Path: "/bin/a/b", Mode: 0o600}}}
}

// files reads a tar into content by name, directories with a slash at the end.
func files(t *testing.T, archive []byte) (names []string, content map[string][]byte) {
	t.Helper()
	content = map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, content
		}
		if err != nil {
			t.Fatal(err)
		}
		if content[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	var first, second bytes.Buffer
	a, b := sample(), sample()
	slices.Reverse(b.Files)
	if err := errors.Join(Write(&first, a), Write(&second, b)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the order of the files changes the archive")
	}
}

// TestWriteHangsTogether follows the digests from the index to the layer.
func TestWriteHangsTogether(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, sample()); err != nil {
		t.Fatal(err)
	}
	_, content := files(t, out.Bytes())
	blob := func(d descriptor) []byte {
		t.Helper()
		b := content["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		sum := sha256.Sum256(b)
		if "sha256:"+hex.EncodeToString(sum[:]) != d.Digest || int64(len(b)) != d.Size {
			t.Fatalf("blob of %+v has %d bytes of another digest", d, len(b))
		}
		return b
	}
	var index, man manifest
	var cfg imageConfig
	if err := json.Unmarshal(content["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "localhost/a/b:2" {
		t.Errorf("name = %q", got)
	}
	if err := json.Unmarshal(blob(index.Manifests[0]), &man); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(blob(*man.Config), &cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.RootFS.DiffIDs[0] != man.Layers[0].Digest {
		t.Error("diff id is not the digest of the uncompressed layer")
	}
	names, _ := files(t, blob(man.Layers[0]))
	want := []string{"bin/", "bin/a/", "bin/a/b", "bin/x", "tmp/"}
	if !slices.Equal(names, want) {
		t.Errorf("layer holds %q, want %q", names, want)
	}
}

func TestWriteWantsAName(t *testing.T) {
	if err := Write(io.Discard, Image{}); err == nil {
		t.Error("an image without a name was written")
	}
}

// TestLinks writes a symbolic link, whose mode and place in the archive are
// those of any file.
func TestLinks(t *testing.T) {
	var out bytes.Buffer
	if err := Tar(&out, []File{{Path: "/bin/sh", Mode: 0o777, Link: "/bin/box"}, {Path: "/bin/box", Mode: 0o755, Data: []byte("x")}}, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(h.Typeflag)+" "+h.Name+" "+h.Linkname)
	}
	if want := []string{"5 bin/ ", "0 bin/box ", "2 bin/sh /bin/box"}; !slices.Equal(got, want) {
		t.Errorf("archive holds %q, want %q", got, want)
	}
}
