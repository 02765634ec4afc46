package signature

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/zap"
)

// Timeout limits the time of a verification.
const Timeout = time.Minute

// Limits of the documents of an image, in bytes unless they say otherwise.
const (
	maxIndex      = 1 << 20   // the list of what refers to the image
	maxManifest   = 256 << 10 // of signatures
	maxSignature  = 256 << 10 // one signature with its certificates
	maxSignatures = 100       // that are tried
	maxReasons    = 3         // that an error lists
	maxWarned     = 1000      // images that were logged, and are not logged again
)

// Media types of signatures.
const (
	simpleType       = "application/vnd.dev.cosign.simplesigning.v1+json"
	bundleTypePrefix = "application/vnd.dev.sigstore.bundle." // and a version; with +json in the oldest ones
	notationType     = "application/vnd.cncf.notary.signature"
)

// simpleAnnotation is the annotation of a layer of simpleType with its signature in base64.
const simpleAnnotation = "dev.cosignproject.cosign/signature"

// Fetch reads a document of the repository that the image comes from. kind is "manifests", "blobs" or
// "referrers", as in paths of the OCI distribution specification; ref is a tag or digest. The error
// wraps fs.ErrNotExist if the registry does not have the document. A document of more than limit bytes
// is an error.
type Fetch = func(ctx context.Context, kind, ref string, limit int64) ([]byte, error)

// Error is the error of an image that the policy refuses.
type Error struct {
	Repository, Digest string
	File               string // the policy
	Line               int    // of the rule in it
	Err                error  // why
}

// Error implements error.
func (e *Error) Error() string {
	image := e.Digest
	if e.Repository != "" {
		image = e.Repository + "@" + e.Digest
	}
	return fmt.Sprintf("%s is refused by %s, line %d: %v", image, e.File, e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Reasons to refuse an image.
var (
	ErrRefused     = errors.New("the rule refuses every image")
	ErrNoSignature = errors.New("no signature of a kind that the rule accepts")
)

// Verify returns an *Error if the policy refuses the image with a digest. name is the image's name, with
// or without a tag, or "" for an image without a name. fetch reads from the image's repository. It is nil
// for an image that comes from no registry: its signatures cannot be read. Verify takes at most
// [Timeout].
func (p *Policy) Verify(ctx context.Context, name, digest string, fetch Fetch) error {
	repository := repositoryOf(name)
	r := p.rule(repository)
	var err error
	switch r.mode {
	case accept:
		return nil
	case refuse:
		err = ErrRefused
	default:
		err = r.verify(ctx, digest, fetch)
	}
	if err == nil {
		return nil
	}
	err = &Error{Repository: repository, Digest: digest, File: p.file, Line: r.line, Err: err}
	if r.mode == warn && ctx.Err() == nil {
		if p.first(repository + "@" + digest) {
			p.log.Warn("image has no valid signature", zap.String("repository", repository), zap.String("digest", digest), zap.Error(err))
		}
		return nil
	}
	return err
}

// warned is the set of images that were logged.
type warned struct {
	mu   sync.Mutex
	seen map[string]bool
}

// first reports whether an image was not logged before.
func (w *warned) first(image string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[image] {
		return false
	}
	if w.seen == nil || len(w.seen) >= maxWarned {
		w.seen = map[string]bool{}
	}
	w.seen[image] = true
	return true
}

// verify returns nil if one signature is valid.
func (r *rule) verify(ctx context.Context, image string, fetch Fetch) error {
	if err := checkDigest(digest.Digest(image)); err != nil {
		return err
	}
	if fetch == nil {
		return errors.New("the image comes from no registry, so its signatures cannot be read")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, fmt.Errorf("signatures were not read within %v", Timeout))
	defer cancel()
	s := &search{rule: r, image: digest.Digest(image), fetch: fetch, now: time.Now()}
	if s.tagged(ctx) || s.referring(ctx) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.err()
}

// search looks for one valid signature of an image.
type search struct {
	rule   *rule
	image  digest.Digest
	fetch  Fetch
	now    time.Time
	tried  int      // signatures
	failed []string // why they are not valid, without repetitions
}

// fail notes why a signature is not valid, or cannot be read.
func (s *search) fail(err error) {
	if text := err.Error(); !slices.Contains(s.failed, text) {
		s.failed = append(s.failed, text)
	}
}

func (s *search) err() error {
	if len(s.failed) == 0 {
		return ErrNoSignature
	}
	text := strings.Join(s.failed[:min(len(s.failed), maxReasons)], "; ")
	if more := len(s.failed) - maxReasons; more > 0 {
		text += fmt.Sprintf("; and %d more reasons", more)
	}
	if s.tried == 0 {
		return errors.New(text)
	}
	return fmt.Errorf("none of %d signatures is valid: %s", s.tried, text)
}

// another reports whether one more signature may be tried.
func (s *search) another(ctx context.Context) bool {
	if s.tried == maxSignatures {
		s.fail(fmt.Errorf("the image has more than %d signatures", maxSignatures))
		return false
	}
	s.tried++
	return ctx.Err() == nil
}

// tagged looks for signatures in cosign's older format, which are the layers of the image with a tag
// made from the digest.
func (s *search) tagged(ctx context.Context) bool {
	if len(s.rule.keys) == 0 {
		return false
	}
	var m ocispec.Manifest
	if !s.read(ctx, "manifests", s.tag()+".sig", maxManifest, &m) {
		return false
	}
	for _, layer := range m.Layers {
		if layer.MediaType != simpleType {
			continue
		}
		if !s.another(ctx) {
			return false
		}
		payload, err := s.blob(ctx, layer)
		if err == nil {
			err = verifySimple(s.rule.keys, payload, layer.Annotations[simpleAnnotation], s.image)
		}
		if err == nil {
			return true
		}
		s.fail(err)
	}
	return false
}

// referring looks for signatures that refer to the image by their subject.
func (s *search) referring(ctx context.Context) bool {
	var index ocispec.Index
	b, err := s.fetch(ctx, "referrers", s.image.String(), maxIndex)
	if err == nil {
		err = json.Unmarshal(b, &index)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The registry has no referrers: clients keep them below a tag (OCI distribution specification,
		// "Referrers Tag Schema").
		if !s.read(ctx, "manifests", s.tag(), maxIndex, &index) {
			return false
		}
	case err != nil:
		s.fail(fmt.Errorf("read referrers of the image: %w", err))
		return false
	}
	for _, d := range index.Manifests {
		verify := s.verifier(d.ArtifactType)
		if verify == nil {
			continue
		}
		if !s.another(ctx) {
			return false
		}
		err := s.artifact(ctx, d, verify)
		if err == nil {
			return true
		}
		s.fail(err)
	}
	return false
}

// verifier returns the function that verifies signatures with an artifact type, or nil if the rule
// accepts none of them.
func (s *search) verifier(artifactType string) func(ctx context.Context, mediaType string, data []byte) error {
	switch {
	case artifactType == notationType && len(s.rule.certificates) > 0:
		return func(_ context.Context, mediaType string, data []byte) error {
			return verifyNotation(s.rule, mediaType, data, s.image, s.now)
		}
	case strings.HasPrefix(artifactType, bundleTypePrefix) && len(s.rule.keys) > 0:
		return func(ctx context.Context, _ string, data []byte) error {
			return verifyBundle(ctx, s.rule.keys, data, s.image)
		}
	}
	return nil
}

// artifact reads an artifact with one signature, and verifies it.
func (s *search) artifact(ctx context.Context, d ocispec.Descriptor, verify func(context.Context, string, []byte) error) error {
	data, err := s.content(ctx, "manifests", d, maxManifest)
	if err != nil {
		return err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("signature %s: %w", d.Digest, err)
	}
	if len(m.Layers) != 1 {
		return fmt.Errorf("signature %s has %d layers; want 1", d.Digest, len(m.Layers))
	}
	if data, err = s.blob(ctx, m.Layers[0]); err != nil {
		return err
	}
	return verify(ctx, m.Layers[0].MediaType, data)
}

// tag returns the image's digest in the form of a tag.
func (s *search) tag() string { return strings.Replace(s.image.String(), ":", "-", 1) }

// read decodes a document that may be missing. It returns false if there is no such document, or if it
// cannot be read.
func (s *search) read(ctx context.Context, kind, ref string, limit int64, into any) bool {
	b, err := s.fetch(ctx, kind, ref, limit)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.fail(fmt.Errorf("read signatures below the tag %s: %w", ref, err))
	}
	return err == nil
}

func (s *search) blob(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	return s.content(ctx, "blobs", d, maxSignature)
}

// content reads a document, and compares it with its digest.
func (s *search) content(ctx context.Context, kind string, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if err := checkDigest(d.Digest); err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	if d.Size < 0 || d.Size > limit {
		return nil, fmt.Errorf("signature %s has %d bytes; want at most %d", d.Digest, d.Size, limit)
	}
	b, err := s.fetch(ctx, kind, d.Digest.String(), limit)
	if err != nil {
		return nil, fmt.Errorf("read signature %s: %w", d.Digest, err)
	}
	if digest.FromBytes(b) != d.Digest {
		return nil, fmt.Errorf("signature %s does not match its digest", d.Digest)
	}
	return b, nil
}

func checkDigest(d digest.Digest) error {
	if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("digest %.100q; want sha256 and 64 hexadecimal digits", string(d))
	}
	return nil
}
