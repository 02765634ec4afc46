package critest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
)

// Registry is a server of images. It has the part of the OCI distribution specification that a
// pull needs. All images are variants of one image, with a further layer and a volume.
type Registry struct {
	t    testing.TB
	host string // host and port

	mu    sync.Mutex
	blobs map[string][]byte // blobs and manifests by digest
	tags  map[string]string // digests of manifests by repository:tag
	next  int

	manifest, config map[string]any // manifest and configuration of the image in the archive
}

// ociManifest is the media type of image manifests (OCI image specification).
const ociManifest = "application/vnd.oci.image.manifest.v1+json"

// NewRegistry serves variants of the image in an archive of sampleimage, over
// HTTP, until the test ends.
func NewRegistry(t testing.TB, archive string) *Registry {
	t.Helper()
	r := &Registry{t: t, blobs: map[string][]byte{}, tags: map[string]string{}}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var index struct{ Manifests []struct{ Digest string } }
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "index.json" {
			r.read(content, &index)
		}
		r.blobs["sha256:"+path.Base(h.Name)] = content
	}
	r.read(r.blobs[index.Manifests[0].Digest], &r.manifest)
	r.read(r.blobs[r.manifest["config"].(map[string]any)["digest"].(string)], &r.config)
	r.extend()
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.host = strings.TrimPrefix(s.URL, "http://")
	return r
}

func (r *Registry) read(content []byte, into any) {
	r.t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		r.t.Fatal(err)
	}
}

// Contents of each variant: a directory in a layer with absolute names, as ko writes it; the
// content of the file "data" in this directory; and a volume that is in no layer.
const (
	extraDir, extraData = "/ko-app", "of another builder"
	volumeDir           = "/volume"
)

// extend gives all variants a further layer and a volume.
func (r *Registry) extend() {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: extraDir, Typeflag: tar.TypeDir, Mode: 0o555},
		{Name: extraDir + "/data", Typeflag: tar.TypeReg, Mode: 0o444, Size: int64(len(extraData))},
	} {
		if err := w.WriteHeader(h); err != nil {
			r.t.Fatal(err)
		}
	}
	_, err := io.WriteString(w, extraData)
	if err := errors.Join(err, w.Close()); err != nil {
		r.t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(b.Bytes()))
	r.blobs[digest] = b.Bytes()
	layer := map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": b.Len()}
	r.manifest["layers"] = append(r.manifest["layers"].([]any), layer)
	rootfs := r.config["rootfs"].(map[string]any)
	rootfs["diff_ids"] = append(rootfs["diff_ids"].([]any), digest)
	r.config["config"].(map[string]any)["Volumes"] = map[string]any{volumeDir: map[string]any{}}
}

// add stores the JSON of v as a blob, and returns its digest and size. mu is held.
func (r *Registry) add(v any) (digest string, size int) {
	content, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256(content))
	r.blobs[digest] = content
	return digest, len(content)
}

// Host returns the registry's host and port.
func (r *Registry) Host() string { return r.host }

// Offer implements the field Offer of a [Subject].
func (r *Registry) Offer(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	r.config["author"] = fmt.Sprint("variant ", r.next)
	conf := r.manifest["config"].(map[string]any)
	conf["digest"], conf["size"] = r.add(r.config)
	r.tags[name], _ = r.add(r.manifest)
	return r.host + "/" + name
}

// ServeHTTP serves /v2/, /v2/REPOSITORY/manifests/TAG (or DIGEST) and /v2/REPOSITORY/blobs/DIGEST.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	if !ok || rest == "" {
		return
	}
	repository, ref, isManifest := strings.Cut(rest, "/manifests/")
	if !isManifest {
		_, ref, _ = strings.Cut(rest, "/blobs/")
	}
	digest := ref
	if !strings.Contains(ref, ":") {
		digest = r.tags[repository+":"+ref]
	}
	content, ok := r.blobs[digest]
	if !ok {
		http.NotFound(w, req)
		return
	}
	if isManifest {
		w.Header().Set("Content-Type", ociManifest)
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = w.Write(content)
}
