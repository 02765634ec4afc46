//go:build linux

package image

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/signtest"
	"github.com/nodewright/nodewright/signature"
)

// verifier is a Verifier that refuses everything while refused is set.
type verifier struct {
	refused  error
	required string
	fetch    func(ctx context.Context, kind, ref string, limit int64) ([]byte, error) // of the last call
	asked    []string
}

func (v *verifier) Verify(ctx context.Context, repository, digest string, fetch func(ctx context.Context, kind, ref string, limit int64) ([]byte, error)) error {
	v.asked, v.fetch = append(v.asked, repository+"@"+digest), fetch
	return v.refused
}

func (v *verifier) Required(string) string { return v.required }

// A refused image costs no layer. Once the requirement changes, an image on the node is only found
// after it was verified again, by no name and no ID.
func TestVerifiedAgain(t *testing.T) {
	srv := newServer()
	m := srv.image(t, "app", "1", nil, archive(t, file("f", "text")))
	v := &verifier{refused: errors.New("unsigned"), required: "a"}
	cfg := testConfig(t, memory{host: srv})
	cfg.Verify = v
	s, _ := start(t, cfg)
	name := host + "/app:1"
	if _, err := s.PullImage(t.Context(), spec(name), nil, nil); status.Code(err) != codes.PermissionDenied || srv.count("/blobs/") > 0 {
		t.Errorf("%v after %d blobs; want PermissionDenied after none", err, srv.count("/blobs/"))
	}
	v.refused = nil
	id := pull(t, s, name)
	if want := host + "/app@" + string(m.manifest); v.asked[len(v.asked)-1] != want {
		t.Errorf("asked for %q; want %s", v.asked, want)
	}
	found := func(want bool) {
		t.Helper()
		for _, n := range []string{name, host + "/app@" + string(m.manifest), id, id[:20]} {
			if got := imageOf(t, s, n) != nil; got != want {
				t.Errorf("%s is found: %t; want %t", n, got, want)
			}
			_, err := s.Use(t.Context(), n, "c")
			if (err == nil) != want {
				t.Errorf("use of %s: %v; want it: %t", n, err, want)
			}
			must(t, s.Release("c"))
		}
		if list, err := s.ListImages(t.Context(), nil); err != nil || len(list) != 1 {
			t.Errorf("the list has %d images, %v; want 1", len(list), err)
		}
	}
	found(true)
	v.required = "b"
	found(false)
	v.required = ""
	found(true)
	v.required = "b"
	blobs := srv.count(string(m.layers[0]))
	pull(t, s, name)
	found(true)
	if now := srv.count(string(m.layers[0])); now != blobs {
		t.Errorf("the layer was downloaded again")
	}
	v.required, v.refused = "c", errors.New("unsigned")
	if _, err := s.PullImage(t.Context(), spec(name), nil, nil); err == nil {
		t.Error("the image is accepted")
	}
	found(false)
	must(t, s.RemoveImage(t.Context(), spec(name)))
	if list, _ := s.ListImages(t.Context(), nil); len(list) > 0 {
		t.Error("an image that is not accepted cannot be removed")
	}
}

// What was verified survives a restart.
func TestVerifiedIsRecorded(t *testing.T) {
	srv := newServer()
	srv.image(t, "app", "1", nil, archive(t, file("f", "text")))
	cfg := testConfig(t, memory{host: srv})
	cfg.Verify = &verifier{required: "a"}
	s, stop := start(t, cfg)
	pull(t, s, host+"/app:1")
	stop()
	s, stop = start(t, cfg)
	if imageOf(t, s, host+"/app:1") == nil {
		t.Error("the image has to be verified again after a restart")
	}
	stop()
	cfg.Verify = &verifier{required: "b"}
	if s, _ = start(t, cfg); imageOf(t, s, host+"/app:1") != nil {
		t.Error("the image is found although more is required since the restart")
	}
}

// Images of archives have no documents to fetch, and the name of their tag.
func TestImportIsVerified(t *testing.T) {
	srv := newServer()
	srv.plain = true
	m := srv.image(t, "app", "1", nil, archive(t, file("f", "text")))
	tarball := archive(t,
		file("manifest.json", string(asJSON(t, []any{map[string]any{"Config": "c.json", "RepoTags": []string{"app:1"}, "Layers": []string{"l.tar"}}}))),
		file("c.json", string(srv.blobs[m.id])), file("l.tar", string(srv.blobs[m.layers[0]])))
	v := &verifier{required: "a"}
	cfg := testConfig(t, nil)
	cfg.Verify = v
	s, _ := start(t, cfg)
	_, err := s.Import(t.Context(), strings.NewReader(string(tarball)), ImportOptions{})
	must(t, err)
	if len(v.asked) != 1 || !strings.HasPrefix(v.asked[0], "docker.io/library/app@sha256:") || v.fetch != nil || imageOf(t, s, "app:1") == nil {
		t.Errorf("asked for %q with fetch %t", v.asked, v.fetch != nil)
	}
	v.refused = errors.New("unsigned")
	if _, err := s.Import(t.Context(), strings.NewReader(string(tarball)), ImportOptions{}); err == nil || !strings.Contains(err.Error(), "unsigned") {
		t.Errorf("%v; want the verifier's error", err)
	}
}

// Documents come from the servers of the pull, by digest also if a mirror has other bytes. Answers of
// registries without referrers mean that there are none.
func TestFetchOfDocuments(t *testing.T) {
	srv, mirror := newServer(), newServer()
	srv.image(t, "app", "1", nil, archive(t, file("f", "text")))
	blob := srv.put([]byte("signature"))
	mirror.blobs[blob.Digest] = []byte("forged")
	code := http.StatusNotFound
	srv.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/referrers/") {
			w.WriteHeader(code)
			return true
		}
		return false
	}
	v := &verifier{}
	cfg := testConfig(t, memory{host: srv, "mirror.test": mirror})
	cfg.Verify, cfg.Registries = v, map[string]Registry{host: {Mirrors: []Mirror{{Host: "mirror.test"}}}}
	s, _ := start(t, cfg)
	pull(t, s, host+"/app:1")
	if b, err := v.fetch(t.Context(), "blobs", string(blob.Digest), 100); err != nil || string(b) != "signature" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := v.fetch(t.Context(), "blobs", string(blob.Digest), 3); err == nil {
		t.Error("a blob has more bytes than the limit")
	}
	if _, err := v.fetch(t.Context(), "manifests", "none", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such tag: %v", err)
	}
	for c, none := range map[int]bool{http.StatusNotFound: true, http.StatusBadRequest: true, http.StatusMethodNotAllowed: true, http.StatusForbidden: false} {
		code = c
		if _, err := v.fetch(t.Context(), "referrers", string(blob.Digest), 100); errors.Is(err, fs.ErrNotExist) != none {
			t.Errorf("referrers with %d: %v; want that there are none: %t", c, err, none)
		}
	}
}

// Over a real connection, with a policy file and keys of sigstore: the image that is signed by the
// right key is pulled, and no other one.
func TestSignaturePolicy(t *testing.T) {
	needRoot(t)
	srv := newServer()
	web := httptest.NewServer(srv)
	defer web.Close()
	at := strings.TrimPrefix(web.URL, "http://")
	dir := t.TempDir()
	right, wrong := signtest.New(t), signtest.New(t)
	must(t, os.WriteFile(filepath.Join(dir, "right.pub"), right.Public, 0o600))
	// of is the image that is said to be signed, says the one that is.
	sign := func(k signtest.Key, repo string, of, says digest) {
		a := k.Sign(t, string(says))
		srv.put(a.Blob)
		srv.offer(repo, strings.ReplaceAll(a.Tag, says.hex(), of.hex()), ociManifest, a.Manifest)
	}
	images := map[string]made{}
	for _, name := range []string{"signed", "unsigned", "by-another-key", "copied", "warned", "refused"} {
		images[name] = srv.image(t, "shop/"+name, "1", nil, archive(t, file(name, name)))
	}
	sign(right, "shop/signed", images["signed"].manifest, images["signed"].manifest)
	sign(wrong, "shop/by-another-key", images["by-another-key"].manifest, images["by-another-key"].manifest)
	sign(right, "shop/copied", images["copied"].manifest, images["signed"].manifest)
	policy := filepath.Join(dir, "policy.yaml")
	must(t, os.WriteFile(policy, []byte(strings.ReplaceAll(`rules:
- {repository: AT/shop/warned, mode: warn, sigstore: {keys: [right.pub]}}
- {repository: AT/shop/refused, mode: refuse}
- {repository: AT/*, mode: enforce, sigstore: {keys: [right.pub]}}
- {repository: "*", mode: refuse}
`, "AT", at)), 0o600))
	p, err := signature.Load(policy, nil)
	must(t, err)
	cfg := testConfig(t, nil)
	cfg.transport, cfg.Verify = nil, p
	s, _ := start(t, cfg)
	for name, want := range map[string]string{
		"signed": "", "warned": "",
		"unsigned":       "line 4: no signature",
		"by-another-key": "line 4: none of 1 signatures is valid: sigstore: none of the rule's keys made the signature",
		"copied":         "line 4: none of 1 signatures is valid: sigstore: signature is for another image",
		"refused":        "line 3: the rule refuses every image",
	} {
		_, err := s.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: at + "/shop/" + name + ":1"}, nil, nil)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if text := status.Convert(err).Message(); !strings.HasPrefix(text, "SignatureValidationFailed: ") || !strings.Contains(text, want) || !strings.Contains(text, string(images[name].manifest)) || srv.count(string(images[name].layers[0])) > 0 {
			t.Errorf("%s: %q; want %q, and no download", name, text, want)
		}
	}
}
