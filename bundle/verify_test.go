package bundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	notation "github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/nodewright/nodewright/signature"
)

// signer signs bundles as Notation does, with a certificate that it has issued itself.
type signer struct {
	notation.Signer
	certificate []byte // in PEM
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop", Organization: []string{"Example"}, Country: []string{"US"}, Province: []string{"WA"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s, err := notation.NewLocalSigner([]*x509.Certificate{parsed}, key)
	if err != nil {
		t.Fatal(err)
	}
	return signer{s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// sign pushes a signature of what has a digest, as one of the bundle.
func (s signer) sign(t *testing.T, r Registry, ref string, b *Bundle, of string) {
	t.Helper()
	payload, err := json.Marshal(map[string]any{"targetArtifact": ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(of), Size: int64(len(b.manifest))}})
	if err != nil {
		t.Fatal(err)
	}
	env, err := notation.NewEnvelope(cose.MediaTypeEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := env.Sign(&notation.SignRequest{
		Payload: notation.Payload{ContentType: "application/vnd.cncf.notary.payload.v1+json", Content: payload},
		Signer:  s.Signer, SigningTime: time.Now().Add(-time.Minute), SigningScheme: notation.SigningSchemeX509,
	})
	if err != nil {
		t.Fatal(err)
	}
	subject := describe(ocispec.MediaTypeImageManifest, b.manifest)
	config := []byte("{}")
	m, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: describe("application/vnd.cncf.notary.signature", config), Layers: []ocispec.Descriptor{describe(cose.MediaTypeEnvelope, sig)}, Subject: &subject,
	})
	if err != nil {
		t.Fatal(err)
	}
	at, err := parse(ref)
	if err != nil {
		t.Fatal(err)
	}
	opts := r.options(t.Context())
	for mediaType, data := range map[string][]byte{"application/vnd.cncf.notary.signature": config, cose.MediaTypeEnvelope: sig} {
		if err := remote.WriteLayer(at.Context(), static.NewLayer(data, types.MediaType(mediaType)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	if err := remote.Put(at.Context().Digest(digest.FromBytes(m).String()), raw(m), opts...); err != nil {
		t.Fatal(err)
	}
}

// Over a real connection, with a policy file: only a bundle with the right signature is used, and one
// of a file only if the last rule accepts it.
func TestSignedBundles(t *testing.T) {
	web := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer web.Close()
	ref := strings.TrimPrefix(web.URL, "http://") + "/fleet/shop:prod"
	right, wrong := newSigner(t), newSigner(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"right.crt": string(right.certificate), "policy.yaml": `rules:
- repository: ` + strings.TrimSuffix(ref, ":prod") + `
  mode: enforce
  notation: {certificates: [right.crt]}
- {repository: "*", mode: refuse}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := signature.Load(filepath.Join(dir, "policy.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := begin(t, freshDisk(), &node{}, func(c *Config) { c.Ref, c.Registry, c.Verify = "", Registry{}, p.Verify })
	defer b.end()
	r := b.cfg.Registry
	signed := manifests(t, "signed")
	for _, c := range []struct {
		name string
		sign func(*Bundle)
		want string // part of the error
	}{
		{"unsigned", func(*Bundle) {}, "line 2: no signature"},
		{"wrong", func(x *Bundle) { wrong.sign(t, r, ref, x, x.Digest) }, "is not by a certificate of the rule"},
		{"copied", func(x *Bundle) { right.sign(t, r, ref, x, signed.Digest) }, "signature is for another image"},
		{"signed", func(x *Bundle) { right.sign(t, r, ref, x, x.Digest) }, ""},
	} {
		x := manifests(t, c.name)
		if err := r.Push(t.Context(), ref, x); err != nil {
			t.Fatal(err)
		}
		c.sign(x)
		_, err := b.Manager.Fetch(t.Context(), ref)
		var refused *signature.Error
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), x.Digest)) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
	if err := b.Apply(t.Context(), signed); err == nil || !strings.Contains(err.Error(), "line 5") {
		t.Errorf("bundle of a file: %v; want it refused by the last rule", err)
	}
}

// Document reads what is below the limit, and says that there is nothing.
func TestDocument(t *testing.T) {
	b := manifests(t, "a")
	reg := &inProcess{h: registry.New(registry.Logger(log.New(io.Discard, "", 0)))} // without referrers
	r := Registry{Transport: reg}
	if err := r.Push(t.Context(), testRef, b); err != nil {
		t.Fatal(err)
	}
	layer := digest.FromBytes(b.layer).String()
	for _, c := range []struct {
		kind, name string
		limit      int64
		want       int // bytes; -1 for an error, -2 for one that there is nothing
	}{
		{"manifests", "prod", 10000, len(b.manifest)},
		{"manifests", b.Digest, 10000, len(b.manifest)},
		{"manifests", "prod", 10, -1},
		{"manifests", "none", 10000, -2},
		{"manifests", "sha256-" + strings.Repeat("0", 64) + ".sig", 10000, -2},
		{"blobs", layer, int64(len(b.layer)), len(b.layer)},
		{"blobs", layer, 3, -1},
		{"blobs", "sha256:" + strings.Repeat("0", 64), 10, -2},
		{"blobs", "../x", 10, -1},
		{"tags", "list", 10, -1},
	} {
		got, err := r.Document(t.Context(), testRef, c.kind, c.name, c.limit)
		if c.want >= 0 && (err != nil || len(got) != c.want) || c.want < 0 && (err == nil || errors.Is(err, fs.ErrNotExist) != (c.want == -2)) {
			t.Errorf("%s %s: %d bytes, %v; want %d", c.kind, c.name, len(got), err, c.want)
		}
	}
	if got, err := r.Document(t.Context(), testRef, "referrers", b.Digest, 10000); err != nil || !strings.Contains(string(got), `"manifests"`) {
		t.Errorf("referrers: %s, %v", got, err)
	}
}
