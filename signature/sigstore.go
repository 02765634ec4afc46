package signature

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	envelope "github.com/secure-systems-lab/go-securesystemslib/dsse"
	bundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"
)

// What cosign signs for an image: a statement of in-toto. Other predicates with a signature by the same
// key, such as reports of vulnerabilities, do not say that the image is good.
const (
	statementType = "application/vnd.in-toto+json"
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// statementVersions are values of _type.
var statementVersions = []string{"https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"}

var errKey = errors.New("sigstore: none of the rule's keys made the signature")

// verifySimple verifies a signature in cosign's older format. text is in base64.
func verifySimple(keys []sigstore.Verifier, signed []byte, text string, image digest.Digest) error {
	sig, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(sig) == 0 {
		return fmt.Errorf("sigstore: signature is not in base64")
	}
	if !slices.ContainsFunc(keys, func(v sigstore.Verifier) bool {
		return v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(signed)) == nil
	}) {
		return errKey
	}
	var p payload.SimpleContainerImage
	if err := json.Unmarshal(signed, &p); err != nil {
		return fmt.Errorf("sigstore: payload: %w", err)
	}
	if p.Critical.Type != payload.CosignSignatureType {
		return fmt.Errorf("sigstore: payload has the type %.100q; want %q", p.Critical.Type, payload.CosignSignatureType)
	}
	if got := p.Critical.Image.DockerManifestDigest; got != image.String() {
		return fmt.Errorf("sigstore: signature is for another image, %.100q", got)
	}
	return nil
}

// statement is the part of an in-toto statement that counts.
type statement struct {
	Type          string `json:"_type"`
	PredicateType string `json:"predicateType"`
	Subject       []struct {
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
}

// verifyBundle verifies a sigstore bundle. Certificates, and entries of a transparency log, in the
// bundle are ignored: the key is pinned.
func verifyBundle(ctx context.Context, keys []sigstore.Verifier, data []byte, image digest.Digest) error {
	var b bundle.Bundle
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &b); err != nil {
		return fmt.Errorf("sigstore: bundle: %w", err)
	}
	e := b.GetDsseEnvelope()
	if e == nil || len(e.GetSignatures()) != 1 {
		return fmt.Errorf("sigstore: bundle has %d signatures in a DSSE envelope; want 1", len(e.GetSignatures()))
	}
	if e.GetPayloadType() != statementType {
		return fmt.Errorf("sigstore: bundle has the payload type %.100q; want %s", e.GetPayloadType(), statementType)
	}
	signed := &envelope.Envelope{
		PayloadType: e.GetPayloadType(), Payload: base64.StdEncoding.EncodeToString(e.GetPayload()),
		Signatures: []envelope.Signature{{Sig: base64.StdEncoding.EncodeToString(e.GetSignatures()[0].GetSig())}},
	}
	if !slices.ContainsFunc(keys, func(v sigstore.Verifier) bool {
		one, err := envelope.NewEnvelopeVerifier(&dsse.VerifierAdapter{SignatureVerifier: v})
		if err != nil {
			return false
		}
		_, err = one.Verify(ctx, signed)
		return err == nil
	}) {
		return errKey
	}
	var s statement
	if err := json.Unmarshal(e.GetPayload(), &s); err != nil {
		return fmt.Errorf("sigstore: statement: %w", err)
	}
	switch {
	case !slices.Contains(statementVersions, s.Type):
		return fmt.Errorf("sigstore: statement has the _type %.100q; want one of %q", s.Type, statementVersions)
	case s.PredicateType != signPredicate:
		return fmt.Errorf("sigstore: statement has the predicateType %.100q; want %s", s.PredicateType, signPredicate)
	}
	for _, about := range s.Subject {
		if about.Digest[image.Algorithm().String()] == image.Encoded() {
			return nil
		}
	}
	return errors.New("sigstore: signature is for another image")
}
