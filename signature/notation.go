package signature

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	notation "github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// notationPayload is the content type of what Notation signs.
const notationPayload = "application/vnd.cncf.notary.payload.v1+json"

// notationEnvelopes are the media types of Notation's signatures.
var notationEnvelopes = []string{jws.MediaTypeEnvelope, cose.MediaTypeEnvelope}

// subject has attributes of the subject of a certificate. Those that are set must have these values.
type subject struct {
	Country            string `json:"C,omitempty"`
	State              string `json:"ST,omitempty"`
	Locality           string `json:"L,omitempty"`
	Organization       string `json:"O,omitempty"`
	OrganizationalUnit string `json:"OU,omitempty"`
	CommonName         string `json:"CN,omitempty"`
}

// matches reports whether a certificate's subject has the attributes. An attribute with several values
// has one of them.
func (s subject) matches(n pkix.Name) bool {
	one := func(want string, has []string) bool { return want == "" || slices.Contains(has, want) }
	return one(s.Country, n.Country) && one(s.State, n.Province) && one(s.Locality, n.Locality) && one(s.Organization, n.Organization) &&
		one(s.OrganizationalUnit, n.OrganizationalUnit) && one(s.CommonName, []string{n.CommonName})
}

// verifyNotation verifies a signature of Notation at a time.
func verifyNotation(r *rule, mediaType string, data []byte, image digest.Digest, now time.Time) error {
	if !slices.Contains(notationEnvelopes, mediaType) {
		return fmt.Errorf("notation: signature has the media type %.100q; want one of %q", mediaType, notationEnvelopes)
	}
	e, err := notation.ParseEnvelope(mediaType, data)
	if err != nil {
		return fmt.Errorf("notation: %w", err)
	}
	content, err := e.Verify()
	if err != nil {
		return fmt.Errorf("notation: %w", err)
	}
	signer := &content.SignerInfo
	if _, err := notation.VerifyAuthenticity(signer, r.certificates); err != nil {
		return fmt.Errorf("notation: signature by %.200q is not by a certificate of the rule", signer.CertificateChain[0].Subject)
	}
	if leaf := signer.CertificateChain[0].Subject; len(r.subjects) > 0 && !slices.ContainsFunc(r.subjects, func(s subject) bool { return s.matches(leaf) }) {
		return fmt.Errorf("notation: signature is by %.200q, which is not a subject of the rule", leaf)
	}
	if err := checkAttributes(&signer.SignedAttributes, now); err != nil {
		return fmt.Errorf("notation: %w", err)
	}
	if err := checkTimes(signer.CertificateChain, now); err != nil {
		return fmt.Errorf("notation: %w", err)
	}
	if got := content.Payload.ContentType; got != notationPayload {
		return fmt.Errorf("notation: payload has the content type %.100q; want %s", got, notationPayload)
	}
	var p struct {
		TargetArtifact ocispec.Descriptor `json:"targetArtifact"`
	}
	if err := json.Unmarshal(content.Payload.Content, &p); err != nil {
		return fmt.Errorf("notation: payload: %w", err)
	}
	if p.TargetArtifact.Digest != image {
		return fmt.Errorf("notation: signature is for another image, %.100q", string(p.TargetArtifact.Digest))
	}
	return nil
}

// checkAttributes returns an error for a signature that has expired, or that needs more than is
// verified here.
func checkAttributes(a *notation.SignedAttributes, now time.Time) error {
	// With the other scheme the authority vouches for the time of the signature.
	if a.SigningScheme != notation.SigningSchemeX509 {
		return fmt.Errorf("signature has the scheme %.100q; want %s", string(a.SigningScheme), notation.SigningSchemeX509)
	}
	for _, x := range a.ExtendedAttributes {
		if x.Critical {
			return fmt.Errorf("signature has the critical attribute %.100q, which is not supported", fmt.Sprint(x.Key))
		}
	}
	if !a.Expiry.IsZero() && !now.Before(a.Expiry) {
		return fmt.Errorf("signature expired at %s", a.Expiry.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkTimes returns an error unless all certificates are valid now.
func checkTimes(chain []*x509.Certificate, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("signature has no certificate")
	}
	for _, c := range chain {
		if now.After(c.NotAfter) {
			return fmt.Errorf("certificate %.200q expired at %s", c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
		}
		if now.Before(c.NotBefore) {
			return fmt.Errorf("certificate %.200q is valid from %s", c.Subject, c.NotBefore.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
