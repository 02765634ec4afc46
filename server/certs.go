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

// maxCA is how large a file of certificates, or a key, may be, in bytes: some hundred
// certificates.
const maxCA = 1 << 20

// ErrNoCertificate is the error of a handshake while there is no certificate.
var ErrNoCertificate = errors.New("no serving certificate available for the kubelet")

// CertsConfig configures the source of certificates. One of Certificate, CertFile
// with KeyFile, and CertDir is required; the first of them that is set is used.
// Files are PEM.
type CertsConfig struct {
	// Certificate is called at each handshake; nil means that there is none yet.
	Certificate       func() *tls.Certificate
	CertFile, KeyFile string
	CertDir           string // directory of a self-signed pair, which is created if needed
	Host              string // host name of the self-signed pair
	IPs               []net.IP

	ClientCAFile string // PEM; "": no client certificates are accepted
	Options      TLSOptions

	// Recheck is the interval of checks for changes that events do not report.
	Recheck time.Duration // 1m
	Log     *zap.Logger   // silent
}

// Certs has the serving certificate of a node's HTTPS API, and the authorities of
// its clients' certificates.
//
// The certificate is, in this order: the result of a function at each handshake (a
// certificate manager's); a pair of files; kubelet.crt and kubelet.key in CertDir,
// which are created and self-signed if they cannot be read. Files are read again
// when they change, also by renaming them or their directory (like mounted
// Secrets). A faulty file is logged, and the former content used.
//
//	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: "node-1"})
//	...
//	go certs.Run(ctx)
//	l = tls.NewListener(l, certs.TLS())
//
// A client certificate is requested and not required: the authenticator decides,
// see [Certs.ClientCAs].
//
// Its methods may be called from any goroutine.
type Certs struct {
	cfg CertsConfig
	// conf does not change after NewCerts; TLS returns copies of it.
	conf *tls.Config
	// pair and cas are read at each handshake, without a lock.
	pair atomic.Pointer[tls.Certificate]
	cas  atomic.Pointer[x509.CertPool]
	// files are the contents of pair and cas, compared to avoid parsing keys after
	// changes of other files. Only New and Run use it.
	files struct{ cert, key, ca []byte }
}

// NewCerts reads the files, and creates a pair in CertDir if none can be read. A
// pair or a file of authorities that cannot be read is an error here; Run only logs
// it. It starts no goroutine.
func NewCerts(cfg CertsConfig) (*Certs, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Recheck == 0 {
		cfg.Recheck = time.Minute
	}
	// HTTP/2 as well: a server without it takes the second.
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
	// The kubelet starts with such options, too.
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
		// Requested and not verified by the handshake: a client with a bearer token
		// may have no certificate, and an invalid one should cause a 401.
		c.conf.ClientAuth = tls.RequestClientCert
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}
	// A function in place of the pair, so that a new one counts from the next handshake
	// on.
	c.conf.GetCertificate = c.certificate
	return c, nil
}

// TLS returns the configuration for a server, which always uses the newest
// certificate. The caller may change the copy.
func (c *Certs) TLS() *tls.Config { return c.conf.Clone() }

// ClientCAs returns the authorities of clients' certificates; nil means none.
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

// loadPair reads the pair, and uses it if it has changed. After an error the former
// is kept.
func (c *Certs) loadPair() error {
	cert, err := safefile.ReadLinked(c.cfg.CertFile, maxCA)
	var key []byte
	// Both files are read before either is used: a writer may be between the two, and
	// then they do not fit.
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
	// An unchanged pair that was written again is not reported.
	if old := c.pair.Load(); old == nil || !slices.EqualFunc(old.Certificate, pair.Certificate, slices.Equal[[]byte]) {
		c.pair.Store(&pair)
	}
	return nil
}

// loadCAs reads the authorities, and uses them if they have changed. After an error
// the former are kept.
func (c *Certs) loadCAs() error {
	b, err := safefile.ReadLinked(c.cfg.ClientCAFile, maxCA)
	if err != nil {
		return fmt.Errorf("client authorities: %w", err)
	}
	if c.cas.Load() != nil && bytes.Equal(b, c.files.ca) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return fmt.Errorf("client authorities %s: the file has no certificate", c.cfg.ClientCAFile)
	}
	// A different order or different comments are no change.
	if old := c.cas.Load(); old == nil || !old.Equal(pool) {
		c.cas.Store(pool)
	}
	c.files.ca = b
	return nil
}

// Run reads files again when they change, until ctx ends, and returns nil. Without
// files it only waits.
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
	// Without a watch, for example if no inotify instances are left, the ticker is
	// used.
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = w.Close() }()
		// Files are renamed into place by their writers: so the directory is
		// watched.
		events, errs = w.Events, w.Errors
		watch(w, files)
		loads = append(loads, func() error { watch(w, files); return nil }) // a directory may be a new one
	}
	// Also with a watch: file systems of servers and some overlays report no events.
	tick := time.NewTicker(c.cfg.Recheck)
	defer tick.Stop()
	// The last error of each, so that a faulty file is logged once.
	last := make([]string, len(loads))
	for {
		// Before the first wait as well: files may have changed since NewCerts.
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
				_ = err // events may have been lost: check
				told = true
			case <-tick.C:
				told = true
			}
		}
	}
}

// concerns reports whether an event may change the content of files: it creates or
// removes a name in the directory of a file (or of its link target), or of that
// directory. Kubernetes' mounts replace a link in the directory (..data), so that
// any name there counts. Writes count only for the files and their targets: the
// directory may also have a log that is written all the time.
func concerns(ev fsnotify.Event, files, names []string) bool {
	if !ev.Has(fsnotify.Create) && !ev.Has(fsnotify.Remove) && !ev.Has(fsnotify.Rename) {
		return slices.Contains(names, ev.Name)
	}
	return slices.ContainsFunc(files, func(f string) bool {
		dir := filepath.Dir(f)
		return ev.Name == dir || filepath.Dir(ev.Name) == dir
	})
}

// targets are the names by which files may be written: their own, and where links lead
// from there.
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

// watch watches the directories of files and their parents, whose renaming changes
// the files as well. A directory that is watched already is no error; a missing one
// is tried again at the next check.
func watch(w *fsnotify.Watcher, files []string) {
	for _, f := range files {
		_ = w.Add(filepath.Dir(f))
		_ = w.Add(filepath.Dir(filepath.Dir(f)))
	}
}
