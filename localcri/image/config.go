//go:build linux

package image

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/distribution/reference"
	"go.uber.org/zap"
)

// pullJobs is the number of concurrent downloads for one image.
const pullJobs = 3

// Config configures a [Store]. RootDir is required. Every other field has a default for its zero
// value.
type Config struct {
	// RootDir is the directory of all files of the store. It is created, accessible for root
	// only. Its file system must support trusted extended attributes (in a user namespace: user extended attributes) and have room for the
	// images.
	RootDir string
	// Registries configures how registries are reached, by host as in references ("docker.io",
	// "registry:5000"). The key "*" is for all hosts that have neither an entry nor a file in
	// HostsDir. The default is HTTPS without mirrors; for a registry on this machine
	// ("localhost:5000", "127.0.0.1:5000") plain HTTP is allowed too.
	Registries map[string]Registry
	// HostsDir is a directory that configures hosts without an entry in Registries, in
	// containerd's layout: HOST/hosts.toml or _default/hosts.toml, or else certificates as in
	// Docker's certs.d. It is read at each pull. If it is "", there are no such files.
	HostsDir string
	// PreloadDir is a directory of archives (*.tar, *.tar.gz, *.tgz, *.tar.zst) and OCI layouts
	// (directories). They are imported at the start, and their images are pinned. If PreloadDir
	// is "", nothing is imported.
	PreloadDir string
	// Pinned names images that are reported as pinned, so that the kubelet's garbage collection
	// keeps them.
	Pinned []string
	// OS, Architecture and Variant are the platform of the images to pull, in the terms of Go and
	// the OCI specification. The default is the platform of this program.
	OS, Architecture, Variant string

	// PullBytesPerSecond limits the downloads of layers, all together. If it is 0, there is no limit.
	PullBytesPerSecond int64
	// MaxLayerBytes limits the size of a layer, both compressed and unpacked. The default is 16
	// GiB.
	MaxLayerBytes int64
	// MaxImageBytes limits the size of all unpacked layers of an image together. The default is
	// 256 GiB. Holes of sparse files count: they take time to unpack, although they need no
	// space.
	MaxImageBytes int64
	// Reserve is the free space that pulls leave on the file system, in bytes. The default is 256
	// MiB.
	Reserve int64
	// ReserveOf returns the bytes and inodes that pulls must leave free on a file system with the
	// given total numbers of bytes and inodes. Of its results and the defaults (Reserve, and
	// 1,024 inodes), the larger ones apply. If ReserveOf is nil, the defaults apply. An agent
	// with eviction thresholds for disk returns them here.
	ReserveOf func(bytes, inodes int64) (int64, int64)

	// Verify decides whether images may be used. If it is nil, every image may be used.
	Verify Verifier
	// Log receives errors for which no caller waits. If it is nil, nothing is logged.
	Log *zap.Logger

	transport func(Endpoint) http.RoundTripper // for tests
	step      func(string)                     // for tests: called at points where a crash is to be simulated
}

// Verifier decides whether images may be used. Its methods may be called concurrently. A repository has
// its registry, as in docker.io/library/nginx. It is "" for an image of an archive without a name.
type Verifier interface {
	// Verify is called before any layer of an image is downloaded. It gets the digest that the
	// reference resolves to. Its error ends the pull or import. fetch reads another document of the
	// repository from the same servers, with the same credentials: kind is "manifests", "blobs" or
	// "referrers", ref a tag or digest. If there is no such document, the error wraps
	// fs.ErrNotExist. fetch is nil for an image of an archive.
	Verify(ctx context.Context, repository, digest string, fetch func(ctx context.Context, kind, ref string, limit int64) ([]byte, error)) error
	// Required returns a text that identifies what images of a repository have to fulfill. It must
	// not block. An image on this node is only found by a name, and used, if Verify has returned nil
	// for its repository while Required returned the same text. If the text is "", the image is found
	// in any case. An ID finds an image that one of its names finds.
	Required(repository string) string
}

// Registry configures how a registry is reached.
type Registry struct {
	Endpoint
	// Server is the registry's server, optionally with a port, and with a path that is put before
	// repositories. If it is "", the server is the host itself.
	Server string
	// Mirrors are tried in order, before the registry itself.
	Mirrors []Mirror
}

// Endpoint configures one server. The zero value means HTTPS with the system's certificate
// authorities.
type Endpoint struct {
	// PlainHTTP allows HTTP if the server does not support TLS. Without it nothing is ever sent
	// unencrypted, not even after a redirect.
	PlainHTTP bool
	// CA are certificates of authorities in PEM, in addition to the system's.
	CA []byte
	// Certificates are client certificates. They are sent only if the server asks for one.
	Certificates []tls.Certificate
	// SkipVerify accepts any certificate of the server.
	SkipVerify bool
	// Header is sent to this server with each request, and to no other one.
	Header http.Header
	// Root is the root path of the registry API. The default is "/v2".
	Root string
	// Lacks is the set of requests that are never sent to this server. If it is 0, all requests
	// are sent.
	Lacks Ability
	// DialTimeout limits the time to connect. The default is 30 s.
	DialTimeout time.Duration
}

// Ability is a set of kinds of requests.
type Ability uint8

// Tags is the resolution of tags to digests. Content is the download of content by digest.
const (
	Tags Ability = 1 << iota
	Content
)

// Mirror is a server with the content of another registry.
type Mirror struct {
	Endpoint
	// Host is the mirror's host, optionally with a port, and a path that is put before
	// repositories: "mirror:5000/cache".
	Host string
	// Username and Password are the credentials for the mirror. A mirror does not get the
	// credentials of pulls. If both are "", the mirror gets none.
	Username, Password string
}

const (
	maxLayerEntries = 1_000_000       // of one layer
	progressTimeout = 5 * time.Minute // ends a download that receives no byte for this long
	pullTimeout     = 6 * time.Hour   // of a pull whose caller sets no deadline
)

// unpackJobs returns how many layers are unpacked concurrently, for all images together.
func unpackJobs() int { return max(2, runtime.NumCPU()) }

// withDefaults returns a copy with every optional field set. The error has all mistakes of the
// configuration.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("image: "+format, args...)) }
	// Not made absolute here: the working directory of an agent is not predictable.
	if !filepath.IsAbs(c.RootDir) {
		bad("Config.RootDir is %q; want an absolute path", c.RootDir)
	}
	if c.HostsDir != "" && !filepath.IsAbs(c.HostsDir) {
		bad("Config.HostsDir is %q; want an absolute path, or none", c.HostsDir)
	}
	if c.PreloadDir != "" && !filepath.IsAbs(c.PreloadDir) {
		bad("Config.PreloadDir is %q; want an absolute path, or none", c.PreloadDir)
	}
	if c.PullBytesPerSecond < 0 {
		bad("Config.PullBytesPerSecond is %d; want a positive number, or 0 for no limit", c.PullBytesPerSecond)
	}
	number(bad, "MaxLayerBytes", &c.MaxLayerBytes, 16<<30)
	number(bad, "MaxImageBytes", &c.MaxImageBytes, 256<<30)
	number(bad, "Reserve", &c.Reserve, 256<<20)
	// The host of a mirror becomes part of URLs. A user, query or scheme in it would be dropped
	// or sent to the wrong server.
	server := func(field, host string, e *Endpoint) {
		if u, err := url.Parse("https://" + host); err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Contains(host, "://") || strings.HasSuffix(host, "/") {
			bad("Config.Registries%s is %q; want a host, perhaps with a port and a path", field, host)
		}
		if e.Root != "" && path.Clean(e.Root) != e.Root || !strings.HasPrefix(e.Root+"/", "/") {
			bad("Config.Registries%s has Root %q; want an absolute path", field, e.Root)
		}
	}
	for host, r := range c.Registries {
		server(fmt.Sprintf("[%q].Server", host), cmp.Or(r.Server, "h"), &r.Endpoint)
		for i := range r.Mirrors {
			server(fmt.Sprintf("[%q].Mirrors[%d].Host", host, i), r.Mirrors[i].Host, &r.Mirrors[i].Endpoint)
		}
	}
	// Names are kept in the long form ("docker.io/library/..."), like those of images, so that
	// they can be compared as strings.
	pinned := make([]string, 0, len(c.Pinned))
	for i, p := range c.Pinned {
		ref, err := reference.ParseDockerRef(p)
		if err != nil {
			bad("Config.Pinned[%d] is %q; want the name of an image: %w", i, p, err)
			continue
		}
		pinned = append(pinned, ref.String())
	}
	c.Pinned = pinned
	// Variant stays "" if it is not set: that is the default of each architecture.
	if c.OS == "" {
		c.OS = runtime.GOOS
	}
	if c.Architecture == "" {
		c.Architecture = runtime.GOARCH
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	// Never nil, so that callers need no check.
	if c.step == nil {
		c.step = func(string) {}
	}
	return c, errors.Join(errs...)
}

// number sets *n to defaultValue if *n is 0. If *n is negative, it calls bad with a message about
// the field.
func number(bad func(string, ...any), field string, n *int64, defaultValue int64) {
	if *n < 0 {
		bad("Config.%s is %v; want a positive number, or 0 for %v", field, *n, defaultValue)
	}
	if *n == 0 {
		*n = defaultValue
	}
}
