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

// ErrNoCertificate is what a handshake fails with while there is none.
var ErrNoCertificate = errors.New("no serving certificate available for the kubelet")

// CertsConfig defines where certificates come from. One of Certificate, CertFile with
// KeyFile, and CertDir is required, and is taken in this order. Files are PEM.
type CertsConfig struct {
	// Certificate is asked at each handshake; nil means that there is none yet.
	Certificate       func() *tls.Certificate
	CertFile, KeyFile string
	CertDir           string // where a self-signed pair is, or comes to be
	Host              string // for whom it is made
	IPs               []net.IP

	ClientCAFile string // PEM; "" means that no client is known by a certificate
	Options      TLSOptions

	// Recheck covers what events do not tell.
	Recheck time.Duration // how often files are looked at without being told; 1m
	Log     *zap.Logger   // silent
}

// Certs has the certificate with which a node's HTTPS API shows who
// it is, and the authorities that sign its clients' certificates.
//
// The certificate is, in this order: what a function returns at each handshake
// (a certificate manager's); a pair of files; kubelet.crt and kubelet.key in
// CertDir, made and self-signed if they cannot be read. Files are read again
// when they change, also by renaming them or their directory (as mounted
// Secrets do); what is wrong then is logged and the former stays in effect.
//
//	certs, err := server.NewCerts(server.CertsConfig{CertDir: dir, Host: "node-1"})
//	...
//	go certs.Run(ctx)
//	l = tls.NewListener(l, certs.TLS())
//
// Clients are asked for a certificate and not refused for lack of one: who they
// are is for the authenticator, see [Certs.ClientCAs].
//
// Its methods may be called from any goroutine.
type Certs struct {
	cfg CertsConfig
	// conf does not change after NewCerts; TLS returns copies of it.
	conf *tls.Config
	// pair and cas are read at each handshake, without a lock.
	pair atomic.Pointer[tls.Certificate]
	cas  atomic.Pointer[x509.CertPool]
	// files are the contents that pair and cas were made of. Other files beside them
	// may change all the time, and keys are dear to parse. New and Run alone use it.
	files struct{ cert, key, ca []byte }
}

// NewCerts reads the files, and makes a pair in CertDir if there is none to be read. A
// pair or a file of authorities that cannot be read is an error here; Run only logs it.
// It does not start a goroutine.
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
		cfg.Log.Warn("TLS option has no effect or is weak", zap.String("option", w))
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
		// Asked for and not verified by the handshake: a client with a bearer token may
		// have no certificate, and what is wrong with one should be a 401.
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

// TLS returns the configuration for a server. Its certificate is always the
// newest one. The caller may change the copy.
func (c *Certs) TLS() *tls.Config { return c.conf.Clone() }

// ClientCAs are those who sign clients' certificates; nil means nobody.
func (c *Certs) ClientCAs() *x509.CertPool { return c.cas.Load() }

// certificate is tls.Config.GetCertificate. Names that clients ask for do not matter: a
// node has one certificate.
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

// loadPair reads the pair, and puts it in effect if it is another one. On an error the
// former stays.
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
	// A pair that was written again unchanged is no news to anybody.
	if old := c.pair.Load(); old == nil || !slices.EqualFunc(old.Certificate, pair.Certificate, slices.Equal[[]byte]) {
		c.pair.Store(&pair)
	}
	return nil
}

// loadCAs reads the authorities, and puts them in effect if they are others. On an
// error the former stay.
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
	// The same authorities in another order, or with other comments, are no news.
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
	// Without a watch, as where there are no inotify instances left, the ticker does.
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = w.Close() }()
		// Files are renamed into place by those who write them: the directory is what
		// is watched.
		events, errs = w.Events, w.Errors
		watch(w, files)
		loads = append(loads, func() error { watch(w, files); return nil }) // a directory may be a new one
	}
	// Also with a watch: file systems of servers and some overlays report no events.
	tick := time.NewTicker(c.cfg.Recheck)
	defer tick.Stop()
	// The last error of each, so that a file which stays broken is logged once.
	last := make([]string, len(loads))
	for {
		// Before the first wait as well: files may have changed since NewCerts.
		for i, load := range loads {
			now := ""
			if err := load(); err != nil {
				now = err.Error()
			}
			if now != "" && now != last[i] {
				c.cfg.Log.Warn("what was read before stays in effect", zap.String("error", now))
			}
			last[i] = now
		}
		// Events of other files in the same directories wake nobody up.
		names := targets(files)
		for told := false; !told; {
			select {
			case <-ctx.Done():
				return nil
			case ev := <-events:
				told = concerns(ev, files, names)
			case err := <-errs:
				_ = err // events may have been lost: look
				told = true
			case <-tick.C:
				told = true
			}
		}
	}
}

// concerns reports whether an event may change what files have: one that gives or takes a
// name in the directory of a file (which may lead there by links), or of that directory.
// Kubernetes' own mounts swap a link in the directory (..data), hence any name there counts.
// What is written counts for names alone, those of the files and what they lead to: the
// directory of an authority's file may also have a log that is written all the time.
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

// watch watches the directories of files, and those above, whose renaming
// changes the files as well. A directory that is watched already is no error; one that
// is missing is tried again at the next look.
func watch(w *fsnotify.Watcher, files []string) {
	for _, f := range files {
		_ = w.Add(filepath.Dir(f))
		_ = w.Add(filepath.Dir(filepath.Dir(f)))
	}
}
