package signature

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	notation "github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

const policyText = `rules:
- repository: registry.example/shop/*
  mode: enforce
  sigstore: {keys: [one.pub]}
  notation:
    certificates: [ca.pem]
    subjects: [{O: Example, CN: signer}]
- repository: "*"
  mode: refuse
`

// Only a signature for this image, by a key or certificate of the rule, is enough. The error says what
// is wrong with each other one.
func TestVerify(t *testing.T) {
	one, two := newKey(), newKey()
	now := time.Now()
	good, stranger := newSigner("signer", now.Add(-time.Hour), now.Add(time.Hour)), newSigner("signer", now.Add(-time.Hour), now.Add(time.Hour))
	cosign := payload.CosignSignatureType
	sigstoreBundle := func(k key, of digest.Digest, predicate string) []byte {
		return k.bundleOf(statementType, statementOf(of, predicate))
	}
	for name, c := range map[string]struct {
		put  func(r *repository)
		want string // part of the error; "" if the image is accepted
	}{
		"unsigned":                {func(*repository) {}, "no signature"},
		"simple":                  {func(r *repository) { p := simplePayload(image, cosign); r.simple(image, p, one.sign(p)) }, ""},
		"simple by another key":   {func(r *repository) { p := simplePayload(image, cosign); r.simple(image, p, two.sign(p)) }, "none of 1 signatures is valid: sigstore: none of the rule's keys made the signature"},
		"simple of another image": {func(r *repository) { p := simplePayload(other, cosign); r.simple(image, p, one.sign(p)) }, "sigstore: signature is for another image, \"" + other.String()},
		"simple of another type": {func(r *repository) {
			p := simplePayload(image, "atomic container signature")
			r.simple(image, p, one.sign(p))
		}, "payload has the type"},
		"simple with other bytes": {func(r *repository) {
			r.simple(image, simplePayload(image, cosign), one.sign(simplePayload(other, cosign)))
		}, "none of the rule's keys"},
		"simple without a signature": {func(r *repository) { r.simple(image, simplePayload(image, cosign), nil) }, "base64"},
		"simple, second": {func(r *repository) {
			p := simplePayload(image, cosign)
			r.simple(image, p, two.sign(p))
			r.simple(image, p, one.sign(p))
		}, ""},
		"other layers": {func(r *repository) {
			change(r, "manifests "+asTag(image)+".sig", func(m *ocispec.Manifest) {
				m.Layers = append(m.Layers, r.put("blobs", "text/plain", simplePayload(image, cosign)))
			})
		}, "no signature"},
		"blob was replaced": {func(r *repository) {
			p := simplePayload(image, cosign)
			r.simple(image, p, one.sign(p))
			r.docs["blobs "+digest.FromBytes(p).String()] = simplePayload(other, cosign)
		}, "does not match its digest"},
		"blob is too large": {func(r *repository) {
			p := make([]byte, maxSignature+1)
			r.simple(image, p, one.sign(p))
		}, "want at most 262144"},
		"blob is larger than it says": {func(r *repository) {
			p := make([]byte, maxSignature+1)
			r.simple(image, p, one.sign(p))
			change(r, "manifests "+asTag(image)+".sig", func(m *ocispec.Manifest) { m.Layers[0].Size = 10 })
		}, "read signature"},
		"bundle": {func(r *repository) { r.refer(image, bundleType, bundleType, sigstoreBundle(one, image, signPredicate)) }, ""},
		"bundle below a tag": {func(r *repository) {
			r.plain = true
			r.refer(image, bundleType, bundleType, sigstoreBundle(one, image, signPredicate))
		}, ""},
		"bundle by another key":   {func(r *repository) { r.refer(image, bundleType, bundleType, sigstoreBundle(two, image, signPredicate)) }, "none of the rule's keys"},
		"bundle of another image": {func(r *repository) { r.refer(image, bundleType, bundleType, sigstoreBundle(one, other, signPredicate)) }, "sigstore: signature is for another image"},
		"report by the key": {func(r *repository) {
			r.refer(image, bundleType, bundleType, sigstoreBundle(one, image, "https://cosign.sigstore.dev/attestation/vuln/v1"))
		}, "predicateType"},
		"bundle with other text": {func(r *repository) {
			r.refer(image, bundleType, bundleType, one.bundleOf("text/plain", statementOf(image, signPredicate)))
		}, "payload type"},
		"no bundle":    {func(r *repository) { r.refer(image, bundleType, bundleType, []byte("{")) }, "sigstore: bundle"},
		"empty bundle": {func(r *repository) { r.refer(image, bundleType, bundleType, []byte("{}")) }, "has 0 signatures"},
		"other artifact": {func(r *repository) {
			r.refer(image, "text/sbom", bundleType, sigstoreBundle(one, image, signPredicate))
		}, "no signature"},
		"jws": {func(r *repository) {
			r.refer(image, notationType, jws.MediaTypeEnvelope, good.sign(jws.MediaTypeEnvelope, image, nil))
		}, ""},
		"cose": {func(r *repository) {
			r.refer(image, notationType, cose.MediaTypeEnvelope, good.sign(cose.MediaTypeEnvelope, image, nil))
		}, ""},
		"jws of another image": {func(r *repository) {
			r.refer(image, notationType, jws.MediaTypeEnvelope, good.sign(jws.MediaTypeEnvelope, other, nil))
		}, "notation: signature is for another image"},
		"by a stranger": {func(r *repository) {
			r.refer(image, notationType, jws.MediaTypeEnvelope, stranger.sign(jws.MediaTypeEnvelope, image, nil))
		}, "is not by a certificate of the rule"},
		"expired signature": {func(r *repository) {
			r.refer(image, notationType, jws.MediaTypeEnvelope, good.sign(jws.MediaTypeEnvelope, image, func(q *notation.SignRequest) { q.Expiry = now.Add(-time.Second) }))
		}, "signature expired at"},
		"scheme of an authority": {func(r *repository) {
			r.refer(image, notationType, cose.MediaTypeEnvelope, good.sign(cose.MediaTypeEnvelope, image, func(q *notation.SignRequest) { q.SigningScheme = notation.SigningSchemeX509SigningAuthority }))
		}, "has the scheme"},
		"critical attribute": {func(r *repository) {
			r.refer(image, notationType, jws.MediaTypeEnvelope, good.sign(jws.MediaTypeEnvelope, image, func(q *notation.SignRequest) {
				q.ExtendedSignedAttributes = []notation.Attribute{{Key: "io.cncf.notary.verificationPlugin", Critical: true, Value: "p"}}
			}))
		}, "critical attribute \"io.cncf.notary.verificationPlugin\""},
		"other payload": {func(r *repository) {
			r.refer(image, notationType, jws.MediaTypeEnvelope, good.sign(jws.MediaTypeEnvelope, image, func(q *notation.SignRequest) { q.Payload.ContentType = "application/json" }))
		}, "content type"},
		"no envelope":      {func(r *repository) { r.refer(image, notationType, jws.MediaTypeEnvelope, []byte("{}")) }, "notation: "},
		"unknown envelope": {func(r *repository) { r.refer(image, notationType, "text/plain", []byte("{}")) }, "media type"},
		"jws as cose": {func(r *repository) {
			r.refer(image, notationType, cose.MediaTypeEnvelope, good.sign(jws.MediaTypeEnvelope, image, nil))
		}, "notation: "},
		"registry fails": {func(r *repository) { r.failing["manifests"] = errors.New("answers 503") }, "read signatures below the tag"},
		"referrers fail": {func(r *repository) { r.failing["referrers"] = errors.New("answers 503") }, "read referrers of the image: answers 503"},
		"tag fails, bundle": {func(r *repository) {
			r.failing[".sig"] = errors.New("answers 503")
			r.refer(image, bundleType, bundleType, sigstoreBundle(one, image, signPredicate))
		}, ""},
		"referrers, no JSON": {func(r *repository) { r.docs["referrers "+image.String()] = []byte("[") }, "read referrers"},
		"artifact, no JSON": {func(r *repository) {
			d := r.put("manifests", "", []byte("["))
			d.ArtifactType = notationType
			change(r, "referrers "+image.String(), func(i *ocispec.Index) { i.Manifests = []ocispec.Descriptor{d} })
		}, "signature sha256:"},
		"artifact of two layers": {func(r *repository) {
			d := r.put("manifests", "", must(json.Marshal(ocispec.Manifest{Layers: make([]ocispec.Descriptor, 2)})))
			d.ArtifactType = notationType
			change(r, "referrers "+image.String(), func(i *ocispec.Index) { i.Manifests = []ocispec.Descriptor{d} })
		}, "has 2 layers; want 1"},
		"digest is a path": {func(r *repository) {
			change(r, "referrers "+image.String(), func(i *ocispec.Index) {
				i.Manifests = []ocispec.Descriptor{{ArtifactType: notationType, Digest: "../../x"}}
			})
		}, "want sha256"},
		"many signatures": {func(r *repository) {
			p := simplePayload(image, cosign)
			for range maxSignatures {
				r.simple(image, p, two.sign(p))
			}
			r.refer(image, bundleType, bundleType, sigstoreBundle(one, image, signPredicate))
		}, "more than 100 signatures"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := load(t, policyText, map[string]string{"one.pub": one.pem, "ca.pem": good.ca})
			if err != nil {
				t.Fatal(err)
			}
			r := newRepository()
			c.put(r)
			err = p.Verify(t.Context(), app+":1", image.String(), r.fetch)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refused *Error
			if !errors.As(err, &refused) || refused.Repository != app || refused.Digest != image.String() || refused.Line != 2 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
			if r.asked > 2*maxSignatures+3 {
				t.Errorf("asked for %d documents", r.asked)
			}
		})
	}
}

// Certificates have to be valid now, and their subjects those of the rule.
func TestVerifyChecksCertificates(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		signer signer
		text   string // of the policy, after the certificates
		leaf   bool   // the certificate itself is pinned, not its authority
		want   string
	}{
		"authority":     {signer: newSigner("a", now.Add(-time.Hour), now.Add(time.Hour))},
		"leaf":          {signer: newSigner("a", now.Add(-time.Hour), now.Add(time.Hour)), leaf: true},
		"expired":       {signer: newSigner("a", now.Add(-3*time.Hour), now.Add(-time.Second)), want: "certificate \"CN=a,O=Example,ST=WA,C=US\" expired at"},
		"not yet":       {signer: newSigner("a", now.Add(time.Hour), now.Add(2*time.Hour)), want: "is valid from"},
		"subject":       {signer: newSigner("a", now.Add(-time.Hour), now.Add(time.Hour)), text: "subjects: [{CN: b}, {C: US, ST: WA, O: Example, CN: a}]"},
		"other subject": {signer: newSigner("a", now.Add(-time.Hour), now.Add(time.Hour)), text: "subjects: [{CN: b}, {O: Other, CN: a}]", want: "is not a subject of the rule"},
	} {
		t.Run(name, func(t *testing.T) {
			pinned := c.signer.ca
			if c.leaf {
				pinned = c.signer.leaf
			}
			p, err := load(t, "rules:\n- repository: \"*\"\n  mode: enforce\n  notation:\n    certificates: [c.pem]\n    "+c.text, map[string]string{"c.pem": pinned})
			if err != nil {
				t.Fatal(err)
			}
			r := newRepository()
			r.refer(image, notationType, cose.MediaTypeEnvelope, c.signer.sign(cose.MediaTypeEnvelope, image, nil))
			err = p.Verify(t.Context(), app, image.String(), r.fetch)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// The modes decide what becomes of an image without a signature.
func TestModes(t *testing.T) {
	k := newKey()
	p, err := load(t, `rules:
- {repository: registry.example/warn, mode: warn, sigstore: {keys: [k.pub]}}
- {repository: registry.example/accept, mode: accept}
- {repository: registry.example/refuse, mode: refuse}
- {repository: "*", mode: enforce, sigstore: {keys: [k.pub]}}
`, map[string]string{"k.pub": k.pem})
	if err != nil {
		t.Fatal(err)
	}
	r := newRepository()
	for _, c := range []struct {
		name     string
		fetch    Fetch
		accepted bool
		required bool
	}{
		{"registry.example/warn:1", r.fetch, true, false},
		{"registry.example/warn", nil, true, false},
		{"registry.example/accept@" + other.String(), nil, true, false},
		{"registry.example/refuse", r.fetch, false, true},
		{"registry.example/other", r.fetch, false, true},
		{"registry.example/warn/below", r.fetch, false, true},
		{"registry.example/warning", r.fetch, false, true},
		{"", nil, false, true},
		{"registry.example/../registry.example/accept", nil, false, true},
	} {
		if err := p.Verify(t.Context(), c.name, image.String(), c.fetch); (err == nil) != c.accepted {
			t.Errorf("%q: %v; want accepted %t", c.name, err, c.accepted)
		}
		if id := p.Required(c.name); (id != "") != c.required {
			t.Errorf("%q requires %q; want something: %t", c.name, id, c.required)
		}
	}
	if !p.first("x") || p.first("x") {
		t.Error("an image is not logged once")
	}
	if err := p.Verify(t.Context(), "registry.example/other", "md5:1", r.fetch); err == nil {
		t.Error("a digest of another algorithm is accepted")
	}
}

// What a rule requires changes with its keys only, so that a change of the policy does not concern
// images of other rules.
func TestRequired(t *testing.T) {
	a, b := newKey(), newKey()
	required := func(text string) string {
		t.Helper()
		p, err := load(t, "rules:\n"+text, map[string]string{"a.pub": a.pem, "b.pub": b.pem})
		if err != nil {
			t.Fatal(err)
		}
		return p.Required(app)
	}
	last := "- {repository: '*', mode: enforce, sigstore: {keys: [a.pub]}}\n"
	first := required(last)
	if again := required("- {repository: docker.io/library/x, mode: accept}\n" + last); again != first {
		t.Error("another rule changes what is required")
	}
	if changed := required(strings.Replace(last, "a.pub", "b.pub", 1)); changed == first {
		t.Error("another key does not change what is required")
	}
}

// A registry that hangs costs a limited time, also with the mode warn.
func TestVerifyEndsInTime(t *testing.T) {
	k := newKey()
	for mode, want := range map[string]string{enforce: "signatures were not read within 1m0s", warn: ""} {
		p, err := load(t, "rules:\n- {repository: '*', mode: "+mode+", sigstore: {keys: [k.pub]}}", map[string]string{"k.pub": k.pem})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRepository()
			r.failing["manifests"] = nil
			begin := time.Now()
			err := p.Verify(t.Context(), app, image.String(), r.fetch)
			if took := time.Since(begin); took > Timeout || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v after %v; want %q", mode, err, took, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.Verify(ctx, app, image.String(), r.fetch); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a cancelled pull: %v", mode, err)
			}
		})
	}
}
