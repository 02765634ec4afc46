package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Limits of requests. A transfer is a bundle with all its blobs.
const (
	askTimeout      = 30 * time.Second
	transferTimeout = 5 * time.Minute
	connectTimeout  = 30 * time.Second
	maxHead         = 1 << 20 // bytes of a header
)

// Registry transfers bundles from and to registries. The zero value sends no credentials. HTTP
// without TLS is used for registries on this machine only.
type Registry struct {
	// Keychain has the credentials. If it is nil, there are none.
	Keychain authn.Keychain
	// Transport sends single requests. If it is nil, it is that of net/http with time limits.
	Transport http.RoundTripper
}

// parse parses a reference with a registry and a tag or digest: nothing is assumed.
func parse(ref string) (name.Reference, error) {
	r, err := name.ParseReference(ref, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("reference %.300q: want REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST", ref)
	}
	return r, nil
}

// CheckRef returns an error if ref does not name a registry and a tag or digest.
func CheckRef(ref string) error {
	_, err := parse(ref)
	return err
}

func (r Registry) options(ctx context.Context) []remote.Option {
	keys := r.Keychain
	if keys == nil {
		keys = authn.NewMultiKeychain()
	}
	next := r.Transport
	if next == nil {
		next = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext, TLSHandshakeTimeout: connectTimeout,
			ResponseHeaderTimeout: askTimeout, MaxResponseHeaderBytes: maxHead, DisableKeepAlives: true,
		}
	}
	// One try: the Manager has its own back-off.
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithTransport(guard{next}), remote.WithRetryBackoff(remote.Backoff{Steps: 1})}
}

// Resolve returns the digest that a reference has now, by one HEAD request.
func (r Registry) Resolve(ctx context.Context, ref string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	at, err := parse(ref)
	if err != nil {
		return "", err
	}
	d, err := remote.Head(at, r.options(ctx)...)
	if err != nil {
		return "", err
	}
	return d.Digest.String(), nil
}

// Fetch downloads the bundle that has the digest in the repository of a reference, and verifies it.
// An ErrInvalid means that the artifact with that digest is no valid bundle.
func (r Registry) Fetch(ctx context.Context, ref, digest string) (*Bundle, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	at, err := parse(ref)
	if err != nil {
		return nil, err
	}
	repo, opts := at.Context(), r.options(ctx)
	found, err := remote.Get(repo.Digest(digest), opts...)
	if err != nil {
		return nil, err
	}
	return open(digest, found.Manifest, func(d ocispec.Descriptor) ([]byte, error) {
		return blobOf(repo.Digest(d.Digest.String()), d.Size, opts)
	})
}

// blobOf downloads a blob of at most limit bytes.
func blobOf(at name.Digest, limit int64, opts []remote.Option) ([]byte, error) {
	layer, err := remote.Layer(at, opts...)
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed() // the blob as the registry has it: the bundle decompresses it itself
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: blob %s has more than %d bytes", errDigest, at.DigestStr(), limit)
	}
	return data, err
}

// Document reads a document of the repository of a reference, such as a signature. kind is "manifests",
// "blobs" or "referrers", as in paths of the OCI distribution specification; name is a tag or digest. The
// error wraps fs.ErrNotExist if the registry does not have the document. A document of more than
// limit bytes is an error.
func (r Registry) Document(ctx context.Context, ref, kind, name string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	at, err := parse(ref)
	if err != nil {
		return nil, err
	}
	data, err := document(at.Context(), kind, name, limit, r.options(ctx))
	var refused *transport.Error
	switch {
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case err == nil && int64(len(data)) > limit:
		return nil, fmt.Errorf("%s %.300q: has more than %d bytes", kind, name, limit)
	}
	return data, err
}

func document(repo name.Repository, kind, ref string, limit int64, opts []remote.Option) ([]byte, error) {
	switch kind {
	case "manifests":
		at := name.Reference(repo.Tag(ref))
		if checkDigest(digest.Digest(ref)) == nil {
			at = repo.Digest(ref)
		}
		d, err := remote.Get(at, opts...)
		if err != nil {
			return nil, err
		}
		return d.Manifest, nil
	case "blobs":
		return blobOf(repo.Digest(ref), limit, opts)
	case "referrers":
		// Without referrers at the registry this is the index below the tag for them.
		index, err := remote.Referrers(repo.Digest(ref), opts...)
		if err != nil {
			return nil, err
		}
		return index.RawManifest()
	}
	return nil, fmt.Errorf("kind of document %.100q: want manifests, blobs or referrers", kind)
}

// Push uploads a bundle, and gives it the tag of the reference.
func (r Registry) Push(ctx context.Context, ref string, b *Bundle) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	at, err := parse(ref)
	if err != nil {
		return err
	}
	opts := r.options(ctx)
	for _, p := range b.blobs() {
		if err := remote.WriteLayer(at.Context(), static.NewLayer(p.data, types.MediaType(p.mediaType)), opts...); err != nil {
			return err
		}
	}
	return remote.Put(at, raw(b.manifest), opts...)
}

// raw is an OCI manifest for [remote.Put].
type raw []byte

func (m raw) RawManifest() ([]byte, error)      { return m, nil }
func (raw) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// guard is a transport that sends nothing without TLS to another machine, and limits the size of
// answers.
type guard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. Redirects and token servers use it as well.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !loopback(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s://%s has no TLS; want https", r.URL.Scheme, r.URL.Host)
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil {
		resp.Body = &limited{resp.Body, maxLayer + 1}
	}
	return resp, err
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// limited is a reader that fails after a number of bytes.
type limited struct {
	io.ReadCloser
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLarge
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

var errTooLarge = errors.New("has too many bytes")
