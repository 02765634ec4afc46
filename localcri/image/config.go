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

// Config holds what a [Store] needs. RootDir is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	// RootDir is where everything is. It is made, for root alone, and must be on
	// a file system with trusted extended attributes and room for the images.
	RootDir string
	// Registries says how hosts are reached, by their names as in references
	// ("docker.io", "registry:5000"), or "*" for all that have no entry and nothing in
	// HostsDir; by HTTPS, without mirrors. Those of the machine itself ("localhost:5000",
	// "127.0.0.1:5000") may do without TLS.
	Registries map[string]Registry
	// HostsDir says how hosts are reached that have no entry in Registries, in
	// containerd's layout: HOST/hosts.toml or _default/hosts.toml, or else certificates
	// beside it as Docker has them (certs.d). It is read at each pull; none.
	HostsDir string
	// PreloadDir has archives (*.tar, *.tar.gz, *.tgz, *.tar.zst) and OCI layouts
	// (directories) that are read at the start, and whose images are pinned; none.
	PreloadDir string
	// Pinned names images that are reported as not to be removed by collectors.
	Pinned []string
	// OS, Architecture and Variant are the platform to pull for, as the Go
	// toolchain and the OCI specification name them; the program's own.
	OS, Architecture, Variant string

	// PullJobs is how many blobs are downloaded at a time for one image; 3.
	PullJobs int
	// UnpackJobs is how many layers are unpacked at a time in all; as many as
	// there are CPUs, and at least 2.
	UnpackJobs int
	// MaxLayerBytes bounds a layer, compressed and unpacked; 16 GiB.
	MaxLayerBytes int64
	// MaxImageBytes bounds all layers of an image, unpacked; 256 GiB. Holes of files
	// count: they cost time, if no space.
	MaxImageBytes int64
	// MaxLayerEntries bounds the entries of a layer; 1,000,000.
	MaxLayerEntries int64
	// Reserve is how many bytes of the file system pulls leave free; 256 MiB.
	Reserve int64
	// ReserveOf, if set, returns how many bytes and inodes of a file system of such a size
	// pulls leave free, if that is more than Reserve and 1,024 inodes: an agent that evicts
	// pods for want of disk has its thresholds here.
	ReserveOf func(bytes, inodes int64) (int64, int64)
	// ProgressTimeout ends a download that gets no byte for so long; 5m.
	ProgressTimeout time.Duration
	// PullTimeout bounds a pull whose caller sets no deadline; 6h.
	PullTimeout time.Duration

	// Verify, if set, decides whether an image may be used, by its name without
	// tag, the digest of what its name leads to and those bytes. Its error ends
	// the pull.
	Verify func(ctx context.Context, name, digest string, manifest []byte) error
	// Log gets what happens beside calls; nobody.
	Log *zap.Logger
	// Observer hears of pulls, downloads and layers; nobody.
	Observer Observer

	transport func(Endpoint) http.RoundTripper // for tests
	step      func(string)                     // for tests: told of points where a crash may come
}

// Registry describes how a host is reached.
type Registry struct {
	Endpoint
	// Server is the registry's own server, perhaps with a port, and a path to put before
	// repositories; the host.
	Server string
	// Mirrors are asked first, in order; the host itself is the last.
	Mirrors []Mirror
}

// Endpoint is one server. Its zero value is HTTPS with the system's authorities.
type Endpoint struct {
	// PlainHTTP has it reached without TLS if it has none. Nothing is ever sent without
	// it otherwise, wherever a server may redirect to.
	PlainHTTP bool
	// CA are authorities' certificates in PEM, beside the system's.
	CA []byte
	// Certificates are shown to it if it asks who its client is.
	Certificates []tls.Certificate
	// SkipVerify takes any certificate of it.
	SkipVerify bool
	// Header is sent to it with each request, and to no other server.
	Header http.Header
	// Root is the path of its API; "/v2".
	Root string
	// Lacks is what it is never asked for; nothing.
	Lacks Ability
	// DialTimeout bounds a connection's making; 30s.
	DialTimeout time.Duration
}

// Ability is a set of what servers are asked for.
type Ability uint8

// Tags is which content a tag leads to, Content is what a digest leads to.
const (
	Tags Ability = 1 << iota
	Content
)

// Mirror is a server that has what another one has.
type Mirror struct {
	Endpoint
	// Host is its name, perhaps with a port, and a path to put before
	// repositories: "mirror:5000/cache".
	Host string
	// Username and Password are sent to it, and those of pulls are not; none.
	Username, Password string
}

// keepPartial is how long what was downloaded in part, and layers of pulls that
// failed, are kept for another try.
const keepPartial = time.Hour

// withDefaults returns a copy with every optional field set, and all mistakes of the
// configuration joined in one error, so that they can be corrected in one go.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("image: "+format, args...)) }
	// Not made absolute here: the working directory of an agent is an accident.
	if !filepath.IsAbs(c.RootDir) {
		bad("Config.RootDir is %q; want an absolute path", c.RootDir)
	}
	if c.HostsDir != "" && !filepath.IsAbs(c.HostsDir) {
		bad("Config.HostsDir is %q; want an absolute path, or none", c.HostsDir)
	}
	if c.PreloadDir != "" && !filepath.IsAbs(c.PreloadDir) {
		bad("Config.PreloadDir is %q; want an absolute path, or none", c.PreloadDir)
	}
	number(bad, "PullJobs", &c.PullJobs, 3)
	number(bad, "UnpackJobs", &c.UnpackJobs, max(2, runtime.NumCPU()))
	number(bad, "MaxLayerBytes", &c.MaxLayerBytes, 16<<30)
	number(bad, "MaxImageBytes", &c.MaxImageBytes, 256<<30)
	number(bad, "MaxLayerEntries", &c.MaxLayerEntries, 1_000_000)
	number(bad, "Reserve", &c.Reserve, 256<<20)
	number(bad, "ProgressTimeout", &c.ProgressTimeout, 5*time.Minute)
	number(bad, "PullTimeout", &c.PullTimeout, 6*time.Hour)
	// The host of a mirror is put into URLs. A user, a query or a scheme in it would be
	// dropped or sent to the wrong place.
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
	// Names are kept in the long form ("docker.io/library/..."), which images have, so
	// that they can be compared as strings.
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
	// Variant stays "" if it is not set: the norm of each architecture.
	if c.OS == "" {
		c.OS = runtime.GOOS
	}
	if c.Architecture == "" {
		c.Architecture = runtime.GOARCH
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	// Never nil, so that the places where a crash may come are one call each.
	if c.step == nil {
		c.step = func(string) {}
	}
	return c, errors.Join(errs...)
}

// number sets *n to otherwise if it is 0, and calls bad for a negative one.
func number[N int | int64 | time.Duration](bad func(string, ...any), field string, n *N, otherwise N) {
	if *n < 0 {
		bad("Config.%s is %v; want a positive number, or 0 for %v", field, *n, otherwise)
	}
	if *n == 0 {
		*n = otherwise
	}
}
