// Package signtest signs images for tests, as cosign does with a key in its older format.
package signtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Key is a private key.
type Key struct {
	signature.Signer
	Public []byte // in PEM
}

// New returns a new key.
func New(t testing.TB) Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := cryptoutils.MarshalPublicKeyToPEM(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	s, err := signature.LoadSigner(private, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return Key{s, public}
}

// Artifact is a signature as a repository has it: a manifest with a tag, and the one blob of it that is
// needed.
type Artifact struct {
	Tag            string
	Manifest, Blob []byte
}

// Sign signs the image with a digest.
func (k Key) Sign(t testing.TB, image string) Artifact {
	t.Helper()
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	blob := encode(payload.SimpleContainerImage{Critical: payload.Critical{Image: payload.Image{DockerManifestDigest: image}, Type: payload.CosignSignatureType}})
	sig, err := k.SignMessage(strings.NewReader(string(blob)))
	if err != nil {
		t.Fatal(err)
	}
	return Artifact{
		Tag: strings.Replace(image, ":", "-", 1) + ".sig", Blob: blob,
		Manifest: encode(ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			Layers: []ocispec.Descriptor{{
				MediaType: "application/vnd.dev.cosign.simplesigning.v1+json", Digest: digest.FromBytes(blob), Size: int64(len(blob)),
				Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)},
			}},
		}),
	}
}
