package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/wake"
)

// CertificatePurpose says which of its two certificates a node requests.
type CertificatePurpose int

// The two certificates of a node: the client certificate for the API server, and
// the serving certificate for the node API.
const (
	ClientCertificate CertificatePurpose = iota
	ServingCertificate
)

func (p CertificatePurpose) signer() string {
	if p == ServingCertificate {
		return certificatesv1.KubeletServingSignerName
	}
	return certificatesv1.KubeAPIServerClientKubeletSignerName
}

func (p CertificatePurpose) usages() []certificatesv1.KeyUsage {
	if p == ServingCertificate {
		return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	}
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
}

// CredentialsConfig configures [Credentials]. Store, Template and one of API and
// Bootstrap are required; the zero value of every other field means the default
// named beside it.
type CredentialsConfig struct {
	Purpose CertificatePurpose // ClientCertificate
	Store   *CertificateStore
	// Template returns the wanted content of the certificate: ClientTemplate or
	// ServingCertificateTemplate. Nil means that it is not known yet.
	Template func() *x509.CertificateRequest
	// API makes calls with the node's certificate. Bootstrap makes them with the
	// credentials of a bootstrap kubeconfig, while there is no valid certificate. One
	// of them may be nil.
	API, Bootstrap CredentialsAPI
	// Initial is the certificate to use if Store has none. It is replaced at once. It may be nil.
	Initial *tls.Certificate
	// CloseConnections is called to end connections that use an earlier certificate. If it is
	// nil, nothing is called.
	CloseConnections func()

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// The waits and intervals of Credentials.
const (
	firstCertificateRetry = 2 * time.Second // after a failed request; doubles
	lastCertificateRetry  = 32 * time.Second
	refusedWait           = 10 * time.Minute // after a request that was denied
	signWait              = 15 * time.Minute // for the signer to answer a request
	lookEvery             = time.Minute      // between checks for a due rotation: the machine's clock may be set
)

// Credentials keeps the certificates of a node: the client certificate and the
// serving certificate. It requests, stores and rotates them.
//
//	store := &kubeapi.CertificateStore{Dir: certDir, Prefix: "kubelet-client"}
//	user, bootstrap, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{
//		Kubeconfig: kubeconfig, Bootstrap: bootstrapKubeconfig, Current: store.CurrentPath(),
//	}, time.Now())
//	...
//	var m *kubeapi.Credentials
//	client, err := kubeapi.New(kubeapi.Config{
//		REST:        rest.AnonymousClientConfig(user),
//		Certificate: func() (*tls.Certificate, error) { return m.ClientCertificate() },
//	})
//	m, err = kubeapi.NewCredentials(kubeapi.CredentialsConfig{
//		Store: store, API: client, Bootstrap: bootstrapClient,
//		Template:         func() *x509.CertificateRequest { return kubeapi.ClientCertificateTemplate("edge-1") },
//		CloseConnections: client.CloseConnections,
//	})
//	go m.Run(ctx)
//	<-m.Ready()
//
// A certificate is replaced after 70 to 90 % of its lifetime, and at once if it
// does not match [CredentialsConfig].Template. Files and names of requests are the
// kubelet's, so that either can take over from the other.
//
// Its methods may be called from any goroutine.
//
// # Faults
//
// No failure ends the process or delays a start. A pair (a certificate with its key)
// stays in use and on disk until its successor is on disk; the current link points to a
// complete pair at every moment. A pair that cannot be stored is used from memory, and
// stored as soon as that is possible. A certificate that has expired by this machine's
// clock is used nevertheless: the clock may be wrong. If the API server refuses the
// certificate, the next request uses the bootstrap credentials. If the server refuses
// those, the next request uses the certificate again. A wrong clock does not cause
// repeated replacements. A request survives a restart of the agent: its key is stored,
// and the request is found again by its name.
type Credentials struct {
	cfg     CredentialsConfig
	met     *certificateMetrics
	changed wake.Signal   // the template may have changed
	first   chan struct{} // closed when there is a certificate

	mu       sync.Mutex
	pair     *tls.Certificate
	at       time.Time // when pair has to be replaced
	unstored [2][]byte // a pair that is not stored yet
	closing  time.Time // when CloseConnections has to be called; zero: never
	started  bool

	asked *asked // the last request; nil: the next one is new. Used only by Run.
}

// NewCredentials checks cfg, reads the store, and returns Credentials; call Run to
// start them. If the stored pair cannot be read, this is logged, and a new one is
// requested.
func NewCredentials(cfg CredentialsConfig) (*Credentials, error) {
	var errs []error
	if cfg.Store == nil || cfg.Store.Dir == "" || cfg.Store.Prefix == "" {
		errs = append(errs, errors.New("field CredentialsConfig.Store is required, with Dir and Prefix"))
	}
	if cfg.Template == nil {
		errs = append(errs, errors.New("field CredentialsConfig.Template is required"))
	}
	if cfg.API == nil && cfg.Bootstrap == nil {
		errs = append(errs, errors.New("one of the fields CredentialsConfig.API and CredentialsConfig.Bootstrap is required"))
	}
	if cfg.Purpose != ClientCertificate && cfg.Purpose != ServingCertificate {
		errs = append(errs, fmt.Errorf("field CredentialsConfig.Purpose: %d: want Client or Server", cfg.Purpose))
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	m := &Credentials{cfg: cfg, changed: wake.New(), first: make(chan struct{})}
	met, err := newCertificateMetrics(cfg.Metrics, cfg.Purpose, m.ttl)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	m.met = met
	pair, err := cfg.Store.Current()
	if err != nil && !errors.Is(err, ErrNoCertificate) {
		cfg.Log.Error("failed to read stored certificate", zap.Error(err))
	}
	switch {
	case err == nil:
		m.use(pair, time.Time{})
	case cfg.Initial != nil && cfg.Initial.Leaf != nil:
		m.use(cfg.Initial, time.Time{})
		m.at = time.Now()
	}
	return m, nil
}

// Current returns the pair in use, or nil if there is none. The certificate may have expired by
// the clock of this machine; the caller decides whether to use it.
func (m *Credentials) Current() *tls.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pair
}

// Ready returns a channel that is closed when there is a certificate.
func (m *Credentials) Ready() <-chan struct{} { return m.first }

// ClientCertificate is for kubeapi.Config.Certificate. Without a certificate it
// returns [ErrNoClientCertificate].
func (m *Credentials) ClientCertificate() (*tls.Certificate, error) {
	if c := m.Current(); c != nil {
		return c, nil
	}
	return nil, ErrNoClientCertificate
}

// ErrNoClientCertificate is the error of calls while there is no client certificate.
// Such calls are not sent to the server, where they would be anonymous.
var ErrNoClientCertificate = errors.New("no client certificate yet")

// TemplateChanged reports that the result of CredentialsConfig.Template may have
// changed.
func (m *Credentials) TemplateChanged() {
	m.changed.Set()
}

// use starts to use a pair. issued is the time at which the pair was issued. For a pair from the
// store it is zero.
func (m *Credentials) use(pair *tls.Certificate, issued time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.pair
	m.pair, m.at = pair, rotateAt(pair.Leaf, rand.Float64(), issued)
	if !m.started {
		m.started = true
		close(m.first)
	}
	if issued.IsZero() {
		return
	}
	m.closing = time.Now()
	if old != nil {
		m.closing = closeAt(old.Leaf, time.Now())
		m.met.rotated(time.Since(old.Leaf.NotBefore))
	}
}

// ttl returns the remaining lifetime of the certificate, or nil if there is none.
func (m *Credentials) ttl() *time.Duration {
	c := m.Current()
	if c == nil {
		return nil
	}
	d := time.Until(c.Leaf.NotAfter)
	return &d
}

// Run replaces the certificate when it is due, until ctx ends, and returns nil
// then. It may be called once.
func (m *Credentials) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		m.storeAgain()
		m.closeDue()
		if t := m.cfg.Template(); t != nil && m.due(t) {
			m.rotate(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-m.changed:
		case <-time.After(m.wait()):
		}
	}
	return nil
}

// due reports whether another certificate has to be requested.
func (m *Credentials) due(t *x509.CertificateRequest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pair == nil || !time.Now().Before(m.at) || certificateMatches(m.pair.Leaf, t) != nil
}

// wait returns the time until the next action. It is at most a minute, since the wall
// clock, which decides about certificates, may be set.
func (m *Credentials) wait() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait := lookEvery
	for _, at := range []time.Time{m.at, m.closing} {
		if until := time.Until(at); !at.IsZero() && until > 0 {
			wait = min(wait, until)
		}
	}
	return wait
}

func (m *Credentials) closeDue() {
	m.mu.Lock()
	due := !m.closing.IsZero() && !time.Now().Before(m.closing)
	if due {
		m.closing = time.Time{}
	}
	m.mu.Unlock()
	if due && m.cfg.CloseConnections != nil {
		m.cfg.CloseConnections()
	}
}

// rotate requests a certificate until it gets one, the template changes, or ctx
// ends.
func (m *Credentials) rotate(ctx context.Context) {
	told, bootstrap := "", false
	var err error
	for try := 0; ctx.Err() == nil; try++ {
		t := m.cfg.Template()
		if t == nil || try > 0 && !m.due(t) {
			return
		}
		bootstrap = m.asBootstrap(err, bootstrap)
		if err = m.request(ctx, t, bootstrap); err == nil || ctx.Err() != nil {
			return
		}
		m.met.failed()
		if text := err.Error(); text != told {
			told = text
			m.cfg.Log.Error("failed to get certificate, trying again", zap.String("signer", m.cfg.Purpose.signer()), zap.Bool("bootstrap", bootstrap), zap.Error(err))
		}
		m.closeDue()
		select {
		case <-ctx.Done():
		case <-m.changed:
			m.TemplateChanged() // Run compares it again
			retry.Sleep(ctx, firstCertificateRetry)
		case <-time.After(retryWait(try, err)):
		}
	}
}

// retryWait returns the wait after a failure: the kubelet's back-off, or refusedWait
// after a denied request, since each request leaves an object in the API server.
func retryWait(try int, err error) time.Duration {
	wait := retry.Backoff{First: firstCertificateRetry, Max: lastCertificateRetry}
	if errors.Is(err, ErrCertificateDenied) || errors.Is(err, ErrCertificateFailed) {
		wait.Max = refusedWait
	}
	return retry.Jitter(wait.After(try+1), 0.1)
}

// asBootstrap reports whether the next request uses the bootstrap credentials. It does if there
// is no certificate, or at the first try if the certificate has expired. After a refusal the
// other credentials are used, since this machine's clock may be wrong and the bootstrap token may
// have expired. last is the error of the last try. lastBootstrap reports whether that try used
// the bootstrap credentials.
func (m *Credentials) asBootstrap(last error, lastBootstrap bool) bool {
	pair := m.Current()
	switch {
	case m.cfg.Bootstrap == nil:
		return false
	case m.cfg.API == nil || pair == nil:
		return true
	case last == nil:
		return time.Now().After(pair.Leaf.NotAfter)
	case apierrors.IsUnauthorized(last) || apierrors.IsForbidden(last):
		return !lastBootstrap
	}
	return lastBootstrap
}

// request requests a certificate, waits until it is issued, and puts it into use.
func (m *Credentials) request(ctx context.Context, t *x509.CertificateRequest, bootstrap bool) error {
	ctx, cancel := context.WithTimeout(ctx, signWait)
	defer cancel()
	defer m.abandonWhenOther(ctx, cancel, t)()
	api := m.cfg.API
	if bootstrap {
		api = m.cfg.Bootstrap
	}
	asked, err := m.ask(t)
	if err != nil {
		return err
	}
	keyPEM := asked.keyPEM
	certPEM, err := sign(ctx, api, asked.request)
	if errors.Is(err, ErrCertificateDenied) || errors.Is(err, ErrCertificateFailed) || errors.Is(err, errOther) {
		m.dropPending()
	}
	if err != nil {
		return err
	}
	pair, err := parse(certPEM, keyPEM)
	if err != nil {
		m.dropPending()
		return fmt.Errorf("the signed certificate is not the requested one: %w", err)
	}
	m.mu.Lock()
	m.unstored = [2][]byte{certPEM, keyPEM}
	m.mu.Unlock()
	m.asked = nil
	m.storeAgain()
	m.use(pair, time.Now())
	m.cfg.Log.Info("got new certificate", zap.String("signer", m.cfg.Purpose.signer()), zap.Time("until", pair.Leaf.NotAfter))
	return nil
}

// abandonWhenOther starts a goroutine that calls cancel once the template differs from
// t. The returned function ends the goroutine and waits for it.
func (m *Credentials) abandonWhenOther(ctx context.Context, cancel context.CancelFunc, t *x509.CertificateRequest) func() {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-ctx.Done():
				return
			case <-m.changed:
				if !sameTemplate(t, m.cfg.Template()) {
					cancel()
					return
				}
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}

// storeAgain stores a pair that could not be stored before, for example because of
// a full disk. The pair is in use meanwhile, and its key is in the file of the
// request.
func (m *Credentials) storeAgain() {
	m.mu.Lock()
	cert, key := m.unstored[0], m.unstored[1]
	m.mu.Unlock()
	if cert == nil {
		return
	}
	if _, err := m.cfg.Store.Update(cert, key); err != nil {
		m.cfg.Log.Error("failed to store certificate, trying again", zap.Error(err))
		return
	}
	m.mu.Lock()
	m.unstored = [2][]byte{}
	m.mu.Unlock()
	m.dropPending()
}

// pendingPath returns the path of the file with the key of the current request.
func (m *Credentials) pendingPath() string {
	return filepath.Join(m.cfg.Store.Dir, m.cfg.Store.Prefix+".key.tmp")
}
