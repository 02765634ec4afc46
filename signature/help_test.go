package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	notation "github.com/notaryproject/notation-core-go/signature"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	envelope "github.com/secure-systems-lab/go-securesystemslib/dsse"
	bundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	pbdsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// image and other are digests of images, app the repository.
var image, other = digest.FromString("image"), digest.FromString("other")

const app = "registry.example/shop/app"

// repository is a repository in memory.
type repository struct {
	docs map[string][]byte // by kind and reference
	// failing is the error of all requests whose kind and reference contain the key.
	failing map[string]error
	asked   int
	plain   bool // has no referrers
}

func newRepository() *repository {
	return &repository{docs: map[string][]byte{}, failing: map[string]error{}}
}

func (r *repository) fetch(ctx context.Context, kind, ref string, limit int64) ([]byte, error) {
	r.asked++
	for part, err := range r.failing {
		if strings.Contains(kind+" "+ref, part) {
			if err == nil {
				<-ctx.Done()
				err = ctx.Err()
			}
			return nil, err
		}
	}
	b, ok := r.docs[kind+" "+ref]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if int64(len(b)) > limit {
		return nil, os.ErrInvalid
	}
	return b, nil
}

// put adds a document by its digest.
func (r *repository) put(kind, mediaType string, b []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
	r.docs[kind+" "+d.Digest.String()] = b
	return d
}

// change reads a document, changes it and writes it.
func change[T any](r *repository, key string, how func(*T)) {
	var v T
	if b, ok := r.docs[key]; ok {
		must(0, json.Unmarshal(b, &v))
	}
	how(&v)
	r.docs[key] = must(json.Marshal(v))
}

func asTag(d digest.Digest) string { return strings.Replace(d.String(), ":", "-", 1) }

// simple adds a signature in cosign's older format to an image.
func (r *repository) simple(of digest.Digest, signed, sig []byte) {
	d := r.put("blobs", simpleType, signed)
	d.Annotations = map[string]string{simpleAnnotation: base64.StdEncoding.EncodeToString(sig)}
	change(r, "manifests "+asTag(of)+".sig", func(m *ocispec.Manifest) { m.Layers = append(m.Layers, d) })
}

// refer adds an artifact that refers to an image.
func (r *repository) refer(of digest.Digest, artifactType, mediaType string, data []byte) {
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType, Layers: []ocispec.Descriptor{r.put("blobs", mediaType, data)}}
	d := r.put("manifests", m.MediaType, must(json.Marshal(m)))
	d.ArtifactType = artifactType
	key := "referrers " + of.String()
	if r.plain {
		key = "manifests " + asTag(of)
	}
	change(r, key, func(i *ocispec.Index) { i.Manifests = append(i.Manifests, d) })
}

// key is a key of sigstore.
type key struct {
	sigstore.SignerVerifier
	pem string // the public one
}

func newKey() key {
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	return key{must(sigstore.LoadSignerVerifier(private, crypto.SHA256)), string(must(cryptoutils.MarshalPublicKeyToPEM(private.Public())))}
}

func (k key) sign(b []byte) []byte { return must(k.SignMessage(strings.NewReader(string(b)))) }

// simplePayload is what cosign signs for an image in its older format.
func simplePayload(of digest.Digest, kind string) []byte {
	return must(json.Marshal(payload.SimpleContainerImage{Critical: payload.Critical{
		Identity: payload.Identity{DockerReference: "elsewhere.example/x"}, Image: payload.Image{DockerManifestDigest: of.String()}, Type: kind,
	}}))
}

// statementOf is what cosign signs for an image in its newer format.
func statementOf(of digest.Digest, predicate string) []byte {
	return must(json.Marshal(map[string]any{
		"_type": statementVersions[0], "predicateType": predicate, "predicate": map[string]any{},
		"subject": []any{map[string]any{"digest": map[string]string{"sha256": of.Encoded()}}},
	}))
}

// bundleOf is a sigstore bundle.
func (k key) bundleOf(payloadType string, signed []byte) []byte {
	sig := k.sign(envelope.PAE(payloadType, signed))
	return must(protojson.Marshal(&bundle.Bundle{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", Content: &bundle.Bundle_DsseEnvelope{DsseEnvelope: &pbdsse.Envelope{
		PayloadType: payloadType, Payload: signed, Signatures: []*pbdsse.Signature{{Sig: sig}},
	}}}))
}

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// signer is a signer of Notation: a certificate, which an authority has issued.
type signer struct {
	notation.Signer
	ca   string // in PEM
	leaf string
	from time.Time // the certificate is valid
}

// newSigner makes an authority and a certificate that is valid from a time to another.
func newSigner(name string, from, to time.Time) signer {
	caKey, leafKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name + " CA", Organization: []string{"Example"}, Country: []string{"US"}, Province: []string{"WA"}},
		NotBefore: from.Add(-time.Hour), NotAfter: to.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER := must(x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey))
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"Example"}, Country: []string{"US"}, Province: []string{"WA"}},
		NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, BasicConstraintsValid: true,
	}
	leafDER := must(x509.CreateCertificate(rand.Reader, leaf, must(x509.ParseCertificate(caDER)), leafKey.Public(), caKey))
	asPEM := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	chain := []*x509.Certificate{must(x509.ParseCertificate(leafDER)), must(x509.ParseCertificate(caDER))}
	return signer{must(notation.NewLocalSigner(chain, leafKey)), asPEM(caDER), asPEM(leafDER), from}
}

// sign returns an envelope for an image.
func (s signer) sign(mediaType string, of digest.Digest, how func(*notation.SignRequest)) []byte {
	req := &notation.SignRequest{
		Payload: notation.Payload{ContentType: notationPayload, Content: must(json.Marshal(map[string]any{"targetArtifact": ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: of, Size: 5}}))},
		Signer:  s.Signer, SigningTime: s.from.Add(time.Minute), SigningScheme: notation.SigningSchemeX509,
	}
	if how != nil {
		how(req)
	}
	return must(must(notation.NewEnvelope(mediaType)).Sign(req))
}

// load loads a policy of a text, beside files.
func load(t testing.TB, text string, files map[string]string) (*Policy, error) {
	t.Helper()
	dir := t.TempDir()
	files["policy.yaml"] = text
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(filepath.Join(dir, "policy.yaml"), nil)
}

type sigstoreVerifier = sigstore.Verifier

// anyone accepts every signature, so that what is signed is parsed.
type anyone struct{ sigstore.Verifier }

func (anyone) VerifySignature(io.Reader, io.Reader, ...sigstore.VerifyOption) error { return nil }
