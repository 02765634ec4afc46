package localcri_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/signtest"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/signature"
)

// raw is a manifest to push.
type raw []byte

func (m raw) RawManifest() ([]byte, error)      { return m, nil }
func (raw) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// pushBox pushes the image of the lab's archive, and returns its digest.
func (l *lab) pushBox(ref name.Reference) string {
	l.t.Helper()
	archives, err := filepath.Glob(filepath.Join(l.dir, "images", "*testbox*"))
	if err != nil || len(archives) == 0 {
		l.t.Fatalf("archives of the image: %q, %v", archives, err)
	}
	b, err := os.ReadFile(archives[0])
	if err != nil {
		l.t.Fatal(err)
	}
	dir := l.t.TempDir()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			l.t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		file := filepath.Join(dir, filepath.Clean("/"+h.Name))
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
	index, err := ocilayout.ImageIndexFromPath(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		l.t.Fatal(err)
	}
	img, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		l.t.Fatal(err)
	}
	return list.Manifests[0].Digest.String()
}

// Of two pods with the same image in two repositories, the one whose repository has a signature runs.
// The other one waits with the reason, and starts once the image is signed there.
func TestSignedPods(t *testing.T) {
	l := newLab(t)
	web := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer web.Close()
	at := strings.TrimPrefix(web.URL, "http://")
	k := signtest.New(t)
	sign := func(repo, image string) {
		t.Helper()
		a := k.Sign(t, image)
		r, err := name.NewRepository(repo)
		if err == nil {
			err = remote.WriteLayer(r, static.NewLayer(a.Blob, "text/plain"))
		}
		if err == nil {
			err = remote.Put(r.Tag(a.Tag), raw(a.Manifest))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var image string
	for _, repo := range []string{"signed", "unsigned"} {
		ref, err := name.ParseReference(at + "/shop/" + repo + ":1")
		if err != nil {
			t.Fatal(err)
		}
		image = l.pushBox(ref)
		write("manifests/"+repo+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  hostNetwork: true\n  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: %q, args: [sleep, 1h]}]\n", repo, ref))
	}
	if err := os.Remove(filepath.Join(l.dir, "manifests", "box.yaml")); err != nil {
		t.Fatal(err)
	}
	sign(at+"/shop/signed", image)
	write("key.pub", string(k.Public))
	write("policy.yaml", "rules:\n- {repository: '"+at+"/*', mode: enforce, sigstore: {keys: [key.pub]}}\n- {repository: '*', mode: refuse}\n")
	policy, err := signature.Load(filepath.Join(l.dir, "policy.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.PreloadDir, l.cfg.Network, l.cfg.Verify = "", runtime.NetworkNone, policy
	n, _ := l.start()
	state := func(name string) (s v1.ContainerState) {
		for _, p := range n.Pods() {
			if strings.HasPrefix(p.Name, name+"-") && len(p.Status.ContainerStatuses) == 1 {
				s = p.Status.ContainerStatuses[0].State
			}
		}
		return s
	}
	await := func(what string, done func() bool) {
		t.Helper()
		for late := time.Now().Add(hang); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("%s: signed %+v, unsigned %+v", what, state("signed"), state("unsigned"))
			}
		}
	}
	await("the signed image runs", func() bool { return state("signed").Running != nil })
	await("the unsigned image is refused", func() bool {
		// Between two tries the reason is ImagePullBackOff, with this one in the message.
		w := state("unsigned").Waiting
		return w != nil && strings.Contains(w.Reason+w.Message, "SignatureValidationFailed") && strings.Contains(w.Message, "policy.yaml, line 2: no signature") && strings.Contains(w.Message, image)
	})
	t.Logf("%s: %s", state("unsigned").Waiting.Reason, state("unsigned").Waiting.Message)
	sign(at+"/shop/unsigned", image)
	await("the image runs once it is signed", func() bool { return state("unsigned").Running != nil })
}
