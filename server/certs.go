package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/safefile"
)

// maxCA limits the size of a file of certificates, or of a key, in bytes. It is enough for some
// hundred certificates.
const maxCA = 1 << 20

// ErrNoCertificate is the error of a TLS handshake while the server has no certificate.
var ErrNoCertificate = errors.New("no serving certificate available for the kubelet")

// CertsConfig configures the source of certificates. Certificate, CertFile with KeyFile, or
// CertDir is required; the first of them that is set is used. Files are PEM.
type CertsConfig struct {
	// Certificate is called at each handshake. It returns nil if there is no certificate yet.
	Certificate       func() *tls.Certificate
	CertFile, KeyFile string
	CertDir           string // directory of a self-signed pair, which is created if it is missing
	Host              string // host name in the self-signed certificate
	IPs               []net.IP

	ClientCAFile string // PEM; if "", no client certificates are accepted
	Options      TLSOptions

	// Recheck is the interval at which files are checked for changes that cause no event.
	Recheck time.Duration // the default is 1 min
	Log     *zap.Logger   // if nil, nothing is logged
}

// Certs has the serving certificate of a node's HTTPS API, and the authorities for its clients'
// certificates.
//
// The certificate comes from the first of these that is configured: a function that is called at
// each handshake (for example of a certificate manager); a pair of files; the files kubelet.crt
// and kubelet.key in CertDir. If the pair in CertDir cannot be read, a self-signed pair is
// created there. Files are read again when they change, also if they or their directory are
// replaced by a rename, as in mounted Secrets. If a file has become invalid, an error is logged,
// and the former content stays in use.
//
//	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: "node-1"})
//	...
//	go certs.Run(ctx)
//	l = tls.NewListener(l, certs.TLS())
//
// A client certificate is requested but not required: the authenticator decides; see
// [Certs.ClientCAs].
//
// Certs is safe for concurrent use.
type Certs struct {
	cfg CertsConfig
	// conf does not change after NewCerts. TLS returns copies of it.
	conf *tls.Config
	// Each handshake reads pair and cas, without a lock.
	pair atomic.Pointer[tls.Certificate]
	cas  atomic.Pointer[x509.CertPool]
	// files has the contents of pair and cas, so that keys are not parsed again when other files
	// change. Only NewCerts and Run use it.
	files struct{ cert, key, ca []byte }
}

// NewCerts reads the files, and creates a pair in CertDir if there is none that can be read. It
// returns an error if a pair or a file of authorities cannot be read. If that happens later,
// Run only logs it. It starts no goroutine.
func NewCerts(cfg CertsConfig) (*Certs, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Recheck == 0 {
		cfg.Recheck = time.Minute
	}
	// "h2" is first. A server without HTTP/2 uses the second.
	c := &Certs{cfg: cfg, conf: &tls.Config{NextProtos: []string{"h2", "http/1.1"}}}
	var errs []error
	switch {
	case (cfg.CertFile == "") != (cfg.KeyFile == ""):
		errs = append(errs, fmt.Errorf("CertsConfig.CertFile is %q and KeyFile %q; want both or none", cfg.CertFile, cfg.KeyFile))
	case cfg.Certificate == nil && cfg.CertFile == "" && cfg.CertDir == "":
		errs = append(errs, errors.New("CertsConfig.Certificate, CertFile or CertDir is required"))
	case cfg.Certificate == nil && cfg.CertFile == "" && cfg.Host == "":
		errs = append(errs, errors.New("CertsConfig.Host is required to make a certificate"))
	}
	if cfg.Recheck < 0 {
		errs = append(errs, fmt.Errorf("CertsConfig.Recheck is %v; want a positive duration", cfg.Recheck))
	}
	warnings, err := cfg.Options.apply(c.conf)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	// Only logged: the kubelet also starts with such options.
	for _, w := range warnings {
		cfg.Log.Warn("found weak or ineffective TLS option", zap.String("option", w))
	}
	if cfg.Certificate == nil {
		if cfg.CertFile == "" {
			if c.cfg.CertFile, c.cfg.KeyFile, err = selfSigned(cfg.CertDir, cfg.Host, cfg.IPs); err != nil {
				return nil, fmt.Errorf("serving: %w", err)
			}
		}
		errs = append(errs, c.loadPair())
	}
	if cfg.ClientCAFile != "" {
		errs = append(errs, c.loadCAs())
		// The handshake requests a certificate but does not verify it: a client with a bearer
		// token may have none, and an invalid one should cause a 401.
		c.conf.ClientAuth = tls.RequestClientCert
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	// A function instead of the pair, so that a new pair is used from the next handshake on.
	c.conf.GetCertificate = c.certificate
	return c, nil
}

// TLS returns the configuration for a server, which always uses the newest certificate. The
// caller may modify it.
func (c *Certs) TLS() *tls.Config { return c.conf.Clone() }

// ClientCAs returns the authorities for clients' certificates. It returns nil if no file of
// authorities is configured.
func (c *Certs) ClientCAs() *x509.CertPool { return c.cas.Load() }

// certificate is tls.Config.GetCertificate. The requested name is ignored: a node
// has one certificate.
func (c *Certs) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair := c.pair.Load()
	if c.cfg.Certificate != nil {
		pair = c.cfg.Certificate()
	}
	if pair == nil {
		return nil, ErrNoCertificate
	}
	return pair, nil
}

// loadPair reads the pair, and uses it if it has changed. After an error, the former pair is
// kept.
func (c *Certs) loadPair() error {
	cert, err := safefile.ReadLinked(c.cfg.CertFile, maxCA)
	var key []byte
	// Both files are read before either is used. They may not match if a writer has replaced only
	// one of them.
	if err == nil {
		key, err = safefile.ReadLinked(c.cfg.KeyFile, maxCA)
	}
	if err == nil && c.pair.Load() != nil && bytes.Equal(cert, c.files.cert) && bytes.Equal(key, c.files.key) {
		return nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.cfg.CertFile, c.cfg.KeyFile, err)
	}
	c.files.cert, c.files.key = cert, key
	// An unchanged pair that was written again is not logged.
	if old := c.pair.Load(); old == nil || !slices.EqualFunc(old.Certificate, pair.Certificate, slices.Equal[[]byte]) {
		c.pair.Store(&pair)
	}
	return nil
}

// loadCAs reads the authorities, and uses them if they have changed. After an error, the former
// ones are kept.
func (c *Certs) loadCAs() error {
	b, err := safefile.ReadLinked(c.cfg.ClientCAFile, maxCA)
	if err != nil {
		return fmt.Errorf("read client authorities: %w", err)
	}
	if c.cas.Load() != nil && bytes.Equal(b, c.files.ca) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return fmt.Errorf("client authorities %s: the file has no certificate", c.cfg.ClientCAFile)
	}
	// A different order or different comments are not a change.
	if old := c.cas.Load(); old == nil || !old.Equal(pool) {
		c.cas.Store(pool)
	}
	c.files.ca = b
	return nil
}

// Run reads the files again whenever they change. It returns nil when ctx ends. If no files are
// configured, it does nothing until then.
func (c *Certs) Run(ctx context.Context) error {
	var loads []func() error
	var files []string
	if c.cfg.Certificate == nil {
		loads, files = append(loads, c.loadPair), append(files, c.cfg.CertFile, c.cfg.KeyFile)
	}
	if c.cfg.ClientCAFile != "" {
		loads, files = append(loads, c.loadCAs), append(files, c.cfg.ClientCAFile)
	}
	if len(loads) == 0 {
		<-ctx.Done()
		return nil
	}
	var events <-chan fsnotify.Event
	var errs <-chan error
	// Without a watch, for example if no inotify instances are available, only the ticker is
	// used.
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = w.Close() }()
		// The directory is watched, since writers rename files into place.
		events, errs = w.Events, w.Errors
		watch(w, files)
		loads = append(loads, func() error { watch(w, files); return nil }) // the directory may have been replaced
	}
	// Also used with a watch, since network file systems and some overlays report no events.
	tick := time.NewTicker(c.cfg.Recheck)
	defer tick.Stop()
	// The last error of each load, so that an invalid file is logged once.
	last := make([]string, len(loads))
	for {
		// Load before the first wait, since files may have changed since NewCerts.
		for i, load := range loads {
			now := ""
			if err := load(); err != nil {
				now = err.Error()
			}
			if now != "" && now != last[i] {
				c.cfg.Log.Warn("failed to read certificate files; using the former ones", zap.String("error", now))
			}
			last[i] = now
		}
		// Events of other files in the same directories are ignored.
		names := targets(files)
		for told := false; !told; {
			select {
			case <-ctx.Done():
				return nil
			case ev := <-events:
				told = concerns(ev, files, names)
			case err := <-errs:
				_ = err // events may have been lost, so check the files
				told = true
			case <-tick.C:
				told = true
			}
		}
	}
}

// concerns reports whether the content of files may have changed with an event. The event
// counts if a name was created or removed in the directory of a file or of its link target, or
// if that directory itself was created or removed. Any name counts, since Kubernetes' mounts
// replace a link in the directory (..data). A write counts only if it is to one of the files or
// their targets, because the directory may also contain a log that is written all the time.
func concerns(ev fsnotify.Event, files, names []string) bool {
	if !ev.Has(fsnotify.Create) && !ev.Has(fsnotify.Remove) && !ev.Has(fsnotify.Rename) {
		return slices.Contains(names, ev.Name)
	}
	return slices.ContainsFunc(files, func(f string) bool {
		dir := filepath.Dir(f)
		return ev.Name == dir || filepath.Dir(ev.Name) == dir
	})
}

// targets returns the paths at which files may be written: their own paths, and the targets of
// symbolic links.
func targets(files []string) []string {
	names := make([]string, 0, 2*len(files))
	for _, f := range files {
		names = append(names, filepath.Clean(f))
		if to, err := filepath.EvalSymlinks(f); err == nil {
			names = append(names, to)
		}
	}
	return names
}

// watch watches the directories of files and their parents, since renaming a directory changes
// the files too. Watching a directory again is not an error. If a directory is missing, the
// next check tries to watch it again.
func watch(w *fsnotify.Watcher, files []string) {
	for _, f := range files {
		_ = w.Add(filepath.Dir(f))
		_ = w.Add(filepath.Dir(filepath.Dir(f)))
	}
}
