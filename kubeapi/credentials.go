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
)

// CertificatePurpose is what a certificate is for.
type CertificatePurpose int

// The two certificates of a node: it calls the API server with the first, and
// serves the node API with the second.
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

// CredentialsConfig holds what [Credentials] needs. Store, Template and one of API and
// Bootstrap are required; the zero value of every other field means the default
// named beside it.
type CredentialsConfig struct {
	Purpose CertificatePurpose // ClientCertificate
	Store   *CertificateStore
	// Template says what the certificate has to say: ClientTemplate or
	// ServingCertificateTemplate. nil means that this is not known yet.
	Template func() *x509.CertificateRequest
	// CredentialsAPI calls with the certificate that the node has, Bootstrap with those
	// of a bootstrap kubeconfig. The second is used while there is no valid
	// certificate. Neither: it is not possible so.
	API, Bootstrap CredentialsAPI
	// Initial is used where Store has none, and replaced at once; none.
	Initial *tls.Certificate
	// CloseConnections is called when connections that were made with an
	// earlier certificate have to end; nothing is closed.
	CloseConnections func()

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Waits of a Manager.
const (
	firstCertificateRetry = 2 * time.Second
	lastCertificateRetry  = 32 * time.Second
	refusedWait           = 10 * time.Minute // after a request that was denied
	signWait              = 15 * time.Minute
	lookEvery             = time.Minute // the clock of the machine may be set meanwhile
)

// Credentials keeps the certificates of a node: the one it calls the API
// server with, and the one it serves with. It asks for them, stores them and
// replaces them in time.
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
// A certificate is replaced after 70 to 90 % of its life, and at once when it
// does not say what [CredentialsConfig].Template asks for. Files and names of requests are
// the kubelet's, so that either can take over from the other.
//
// Its methods may be called from any goroutine.
//
// # Faults
//
// Nothing here ends the process, or waits before a start. A pair stays in use,
// and stays stored, until its successor is on disk; the current link leads to a
// whole pair at every moment. A pair that cannot be stored is used from memory,
// and stored when that is possible. A certificate that has expired by this
// machine's clock is shown nevertheless: the clock may be wrong. Whoever is
// refused with it asks with the bootstrap credentials, and the other way round.
// A clock that is off by hours does not have certificates replaced again and
// again. A request outlives the agent: its key is kept, and the request found
// again by its name.
type Credentials struct {
	cfg     CredentialsConfig
	met     *certificateMetrics
	changed chan struct{} // the template is another, perhaps
	first   chan struct{} // closed when there is a certificate

	mu       sync.Mutex
	pair     *tls.Certificate
	at       time.Time // to be replaced
	healthy  bool      // of the API server, as far as it is known
	unstored [2][]byte // what could not be stored yet
	closing  time.Time // when connections have to be closed; zero: not
	started  bool

	asked *asked // the last request; nil: the next one is another. Of Run alone.
}

// NewCredentials checks cfg, reads the store, and returns a Manager at rest. A pair that
// cannot be read is told of in the log, and a new one asked for.
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
	m := &Credentials{cfg: cfg, changed: make(chan struct{}, 1), first: make(chan struct{}), healthy: true}
	met, err := newCertificateMetrics(cfg.Metrics, cfg.Purpose, m.ttl)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	m.met = met
	pair, err := cfg.Store.Current()
	if err != nil && !errors.Is(err, ErrNoCertificate) {
		cfg.Log.Error("the stored certificate cannot be used", zap.Error(err))
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

// Current is the pair in use; nil while there is none. It may have expired, by
// the clock of this machine: whether it has is for others to say.
func (m *Credentials) Current() *tls.Certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pair
}

// Ready is closed when there is a certificate.
func (m *Credentials) Ready() <-chan struct{} { return m.first }

// ServerHealthy reports that the API server answered the last request, if only
// with a refusal.
func (m *Credentials) ServerHealthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.healthy
}

// ClientCertificate is for kubeapi.Config.Certificate. While there is none it
// fails with [ErrNoClientCertificate].
func (m *Credentials) ClientCertificate() (*tls.Certificate, error) {
	if c := m.Current(); c != nil {
		return c, nil
	}
	return nil, ErrNoClientCertificate
}

// ErrNoClientCertificate is what calls end with while there is no client certificate: they
// are not made as nobody.
var ErrNoClientCertificate = errors.New("no client certificate yet")

// ErrNoServingCertificate is what clients get while there is no serving certificate.
var ErrNoServingCertificate = errors.New("no serving certificate available for the kubelet")

// ServerCertificate is for tls.Config.GetCertificate.
func (m *Credentials) ServerCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := m.Current(); c != nil {
		return c, nil
	}
	return nil, ErrNoServingCertificate
}

// TemplateChanged notes that CredentialsConfig.Template may return another one.
func (m *Credentials) TemplateChanged() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// use puts a pair into use. issued is when, if it is new.
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

// ttl is the rest of the certificate's life; nil if there is none.
func (m *Credentials) ttl() *time.Duration {
	c := m.Current()
	if c == nil {
		return nil
	}
	d := time.Until(c.Leaf.NotAfter)
	return &d
}

// Run replaces the certificate when its time has come, until ctx ends, and
// returns nil then. It may be called once.
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

// due reports that another certificate is needed.
func (m *Credentials) due(t *x509.CertificateRequest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pair == nil || !time.Now().Before(m.at) || certificateMatches(m.pair.Leaf, t) != nil
}

// wait is the time until something is to be done, at most a minute: the times of
// certificates are those of the wall clock, which may be set.
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

// rotate asks for a certificate until there is one, the template is another, or
// ctx ends.
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
		m.mu.Lock()
		m.healthy = serverHealthy(err)
		m.mu.Unlock()
		if text := err.Error(); text != told {
			told = text
			m.cfg.Log.Error("no new certificate, trying again", zap.String("signer", m.cfg.Purpose.signer()), zap.Bool("bootstrap", bootstrap), zap.Error(err))
		}
		m.closeDue()
		select {
		case <-ctx.Done():
		case <-m.changed:
			m.TemplateChanged() // Run looks at it, too
			retry.Sleep(ctx, firstCertificateRetry)
		case <-time.After(retryWait(try, err)):
		}
	}
}

// retryWait is the kubelet's back-off; a request that was refused is made again
// less often, as each leaves an object behind.
func retryWait(try int, err error) time.Duration {
	wait := retry.Backoff{First: firstCertificateRetry, Max: lastCertificateRetry}
	if errors.Is(err, ErrCertificateDenied) || errors.Is(err, ErrCertificateFailed) {
		wait.Max = refusedWait
	}
	return retry.Jitter(wait.After(try+1), 0.1)
}

// serverHealthy reports that an answer came from a server that works.
func serverHealthy(err error) bool {
	return err == nil || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

// asBootstrap chooses who asks. The certificate may have expired, or only seem
// so; the token may have expired, too: where one was refused, the other is
// tried.
func (m *Credentials) asBootstrap(last error, was bool) bool {
	pair := m.Current()
	switch {
	case m.cfg.Bootstrap == nil:
		return false
	case m.cfg.API == nil || pair == nil:
		return true
	case last == nil:
		return time.Now().After(pair.Leaf.NotAfter)
	case apierrors.IsUnauthorized(last) || apierrors.IsForbidden(last):
		return !was
	}
	return was
}

// request makes one try.
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
		return fmt.Errorf("the server signed something else: %w", err)
	}
	m.mu.Lock()
	m.healthy, m.unstored = true, [2][]byte{certPEM, keyPEM}
	m.mu.Unlock()
	m.asked = nil
	m.storeAgain()
	m.use(pair, time.Now())
	m.cfg.Log.Info("new certificate", zap.String("signer", m.cfg.Purpose.signer()), zap.Time("until", pair.Leaf.NotAfter))
	return nil
}

// abandonWhenOther cancels a request that is waited for when the template has
// become another. The returned function ends the watching.
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

// storeAgain stores what could not be stored, such as on a full disk. The pair
// is in use meanwhile, and its key stays in the file of the request.
func (m *Credentials) storeAgain() {
	m.mu.Lock()
	cert, key := m.unstored[0], m.unstored[1]
	m.mu.Unlock()
	if cert == nil {
		return
	}
	if _, err := m.cfg.Store.Update(cert, key); err != nil {
		m.cfg.Log.Error("the certificate cannot be stored, trying again", zap.Error(err))
		return
	}
	m.mu.Lock()
	m.unstored = [2][]byte{}
	m.mu.Unlock()
	m.dropPending()
}

// pendingPath is the file of the key that a certificate is asked for with.
func (m *Credentials) pendingPath() string {
	return filepath.Join(m.cfg.Store.Dir, m.cfg.Store.Prefix+".key.tmp")
}
