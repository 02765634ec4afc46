package podsync

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// CertificateClient creates and reads PodCertificateRequests in the API server. The result of
// [kubeapi.Client.Once] implements it.
type CertificateClient interface {
	Create(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, obj, into runtime.Object, subresources ...string) error
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
}

// CertificateEvents records events of pods.
type CertificateEvents interface {
	Event(pod *v1.Pod, eventType, reason, message string)
}

// CertificateConfig configures a [CertificateIssuer]. Client, NodeName, Node and
// ServiceAccount are required; the zero value of every other field means the
// default named beside it.
type CertificateConfig struct {
	Client   CertificateClient
	NodeName string
	// Node returns the UID of the Node, and false if it is not known.
	Node func() (types.UID, bool)
	// ServiceAccount reads the current object from the API server.
	ServiceAccount func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Events         CertificateEvents     // if nil, no events are recorded
	Log            *zap.Logger           // if nil, nothing is logged
	Metrics        prometheus.Registerer // if nil, metrics are not exported
}

const (
	// certificateTimeout is how long a call waits for a first certificate.
	certificateTimeout = 10 * time.Second
	// poll is the first pause between two reads of a request. The pause doubles up to maxPoll.
	poll, maxPoll = 250 * time.Millisecond, 2 * time.Second
	// jitter is the maximum delay of a refresh after beginRefreshAt, as in the kubelet.
	jitter = 5 * time.Minute
	// overdueAfter is the time after beginRefreshAt at which the pod gets an event, as in the
	// kubelet.
	overdueAfter = 10 * time.Minute
	// abandonAfter is how long a request may be unreadable before it counts as deleted,
	// as in the kubelet. A node gets 403 for a request that does not exist, and also
	// for a new one that the authorizer has not seen yet.
	abandonAfter = 10 * time.Minute
	// maxWords limits the bytes of a signer's reason and message that errors and events
	// show.
	maxWords = 1024
)

var (
	errNotIssued   = errors.New("the certificate has not been issued yet")
	errUnsupported = errors.New("the API server does not serve PodCertificateRequests (certificates.k8s.io/v1 or v1beta1)")
)

// source is one source of a projected volume.
type source struct {
	pod    types.UID
	volume string
	index  int
}

// certificateRecord is the state of a source. The call that holds the semaphore turn
// owns the other fields, and writes them with CertificateIssuer.mu held.
type certificateRecord struct {
	turn   chan struct{}
	signer string

	key, chain       []byte    // in PEM; nil if nothing was issued yet
	refreshAt        time.Time // beginRefreshAt, with the jitter
	notAfter         time.Time
	overdue, expired bool // the event about it was sent

	request *request // pending; nil: none
	refused error    // the error after a denied or failed request, which is final; nil if there is none
	state   string   // of that request: denied, failed or ""
}

// request is a request without an answer.
type request struct {
	name   string
	beta   bool // it was made in v1beta1
	public crypto.PublicKey
	key    []byte // in PEM
	made   time.Time
	seen   bool // it was read at least once
}

// CertificateIssuer requests the certificates of pods from an API server's signers
// (PodCertificateRequest, KEP-4317): it implements [plugins.Certificates] for a
// node of a cluster.
//
//	i, err := podsync.NewCertificateIssuer(podsync.CertificateConfig{Client: client.Once(), NodeName: "edge-7", ...})
//	key, chain, err := i.Certificate(ctx, pod, "credentials", 0)
//
// Each source of a projected volume has a private key, made here, and a request
// through which a signer issues a certificate for it. Keys are only in memory:
// after a restart of the agent pods get new ones.
//
// # Time
//
// A CertificateIssuer has no goroutine. Each call of [CertificateIssuer.Certificate]
// takes the next step: it creates a request, or reads one. Volumes call it at least
// once a minute, as often as the kubelet checks for refreshes. A call for the first
// certificate waits up to ten seconds. A certificate that is due for a
// refresh (beginRefreshAt, plus up to five minutes of jitter) is used until the next
// one is issued, which has a new key.
//
// # Faults
//
// A request that was denied or failed is final for its volume, as in the kubelet: the
// pod gets an event, and no further request is made. If somebody deletes a request, it
// is created again. A chain whose first certificate does not fit the key is refused.
//
// Its methods may be called from any goroutine.
type CertificateIssuer struct {
	cfg CertificateConfig

	mu      sync.Mutex
	records map[source]*certificateRecord
}

var _ plugins.Certificates = (*CertificateIssuer)(nil)

// NewCertificateIssuer checks cfg and returns a CertificateIssuer. It makes no
// call.
func NewCertificateIssuer(cfg CertificateConfig) (*CertificateIssuer, error) {
	var errs []error
	for _, r := range []struct {
		name    string
		missing bool
	}{
		{"CertificateConfig.Client", cfg.Client == nil},
		{"CertificateConfig.NodeName", cfg.NodeName == ""},
		{"CertificateConfig.Node", cfg.Node == nil},
		{"CertificateConfig.ServiceAccount", cfg.ServiceAccount == nil},
	} {
		if r.missing {
			errs = append(errs, errors.New(r.name+" is required"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	i := &CertificateIssuer{cfg: cfg, records: map[source]*certificateRecord{}}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(collector{i}); err != nil {
			return nil, fmt.Errorf("podsync: %w", err)
		}
	}
	return i, nil
}

// Certificate returns the key and the certificates of a source, in PEM. If none was
// issued before, it waits for ten seconds.
func (i *CertificateIssuer) Certificate(ctx context.Context, pod *v1.Pod, volume string, index int) (key, chain []byte, err error) {
	want, err := projection(pod, volume, index)
	if err != nil {
		return nil, nil, err
	}
	if podmeta.IsStatic(pod) || podmeta.IsMirror(pod) {
		return nil, nil, errors.New("static pods cannot have certificates: the API server has their mirror pods, with other UIDs")
	}
	r := i.record(source{pod.UID, volume, index}, want.SignerName)
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	end := time.Now().Add(certificateTimeout)
	for pause := poll; ; pause = min(2*pause, maxPoll) {
		err := i.step(ctx, pod, want, r)
		switch {
		case r.refused != nil:
			return nil, nil, r.refused
		case r.chain != nil:
			if err != nil && !errors.Is(err, errNotIssued) {
				i.cfg.Log.Warn("failed to refresh certificate of pod", zap.String("pod", pod.Namespace+"/"+pod.Name),
					zap.String("volume", volume), zap.String("signer", want.SignerName), zap.Error(err))
			}
			return r.key, r.chain, nil
		case !errors.Is(err, errNotIssued) || time.Now().Add(pause).After(end):
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("%w: %w", errNotIssued, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// ForgetVolume drops the keys and certificates of a volume.
func (i *CertificateIssuer) ForgetVolume(uid types.UID, volume string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for s := range i.records {
		if s.pod == uid && s.volume == volume {
			delete(i.records, s)
		}
	}
}

func (i *CertificateIssuer) record(s source, signer string) *certificateRecord {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := i.records[s]
	if r == nil {
		r = &certificateRecord{turn: make(chan struct{}, 1), signer: signer}
		i.records[s] = r
	}
	return r
}

// set calls change with i.mu held, for fields that other calls read.
func (i *CertificateIssuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

func projection(pod *v1.Pod, volume string, index int) (*v1.PodCertificateProjection, error) {
	for n := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[n]
		if v.Name == volume && v.Projected != nil && index >= 0 && index < len(v.Projected.Sources) && v.Projected.Sources[index].PodCertificate != nil {
			return v.Projected.Sources[index].PodCertificate, nil
		}
	}
	return nil, fmt.Errorf("volume %q: source %d is not a podCertificate", volume, index)
}

// step creates a new request, reads the pending one, or does nothing if the certificate
// is not due for a refresh.
func (i *CertificateIssuer) step(ctx context.Context, pod *v1.Pod, want *v1.PodCertificateProjection, r *certificateRecord) error {
	if r.refused != nil {
		return r.refused
	}
	now := time.Now()
	if r.chain != nil {
		if now.Before(r.refreshAt) {
			return nil
		}
		i.late(pod, r, now)
	}
	if r.request == nil {
		q, err := i.ask(ctx, pod, want)
		if err != nil {
			return err
		}
		r.request = q
	}
	return i.look(ctx, pod, r)
}

// late sends one event when the refresh of a certificate is overdue, and one event when
// the certificate has expired.
func (i *CertificateIssuer) late(pod *v1.Pod, r *certificateRecord, now time.Time) {
	if now.After(r.refreshAt.Add(overdueAfter)) && !r.overdue {
		r.overdue = true
		i.tell(pod, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if now.After(r.notAfter) && !r.expired {
		r.expired = true
		i.tell(pod, "CertificateExpired", "PodCertificate expired")
	}
}

// tell sends a warning event about the pod.
func (i *CertificateIssuer) tell(pod *v1.Pod, reason, message string) {
	if i.cfg.Events != nil {
		i.cfg.Events.Event(pod, v1.EventTypeWarning, reason, message)
	}
}

// ask creates a key and a request for it.
func (i *CertificateIssuer) ask(ctx context.Context, pod *v1.Pod, want *v1.PodCertificateProjection) (*request, error) {
	node, ok := i.cfg.Node()
	if !ok {
		return nil, errors.New("the Node is not registered yet")
	}
	account, err := i.cfg.ServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, fmt.Errorf("get service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	key, err := generate(want.KeyType)
	if err != nil {
		return nil, err
	}
	pemKey, stub, err := encode(key)
	if err != nil {
		return nil, err
	}
	q := &certificatesv1.PodCertificateRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "PodCertificateRequest"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: want.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(i.cfg.NodeName), NodeUID: node,
			MaxExpirationSeconds: want.MaxExpirationSeconds, StubPKCS10Request: stub, UnverifiedUserAnnotations: want.UserAnnotations,
		},
	}
	name, beta, err := i.create(ctx, q)
	switch {
	case unserved(err):
		return nil, fmt.Errorf("%w: %w", errUnsupported, err)
	case err != nil:
		return nil, fmt.Errorf("create PodCertificateRequest: %w", err)
	case name == "":
		return nil, errors.New("create PodCertificateRequest: the API server answered without a name")
	}
	return &request{name: name, beta: beta, public: key.Public(), key: pemKey, made: time.Now()}, nil
}

// create creates the request in v1, or in v1beta1 if the API server has no v1 (before Kubernetes
// 1.37), and returns its name. It tries v1 first each time, since the next request may be hours
// later and reach another API server.
func (i *CertificateIssuer) create(ctx context.Context, q *certificatesv1.PodCertificateRequest) (name string, beta bool, err error) {
	k, made := kubeapi.Key{Namespace: q.Namespace}, &certificatesv1.PodCertificateRequest{}
	if err := i.cfg.Client.Create(ctx, kubeapi.PodCertificateRequests, k, q, made); !unserved(err) {
		return made.Name, false, err
	}
	b := &certificatesv1beta1.PodCertificateRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1beta1", Kind: "PodCertificateRequest"},
		ObjectMeta: q.ObjectMeta,
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: q.Spec.SignerName, PodName: q.Spec.PodName, PodUID: q.Spec.PodUID,
			ServiceAccountName: q.Spec.ServiceAccountName, ServiceAccountUID: q.Spec.ServiceAccountUID,
			NodeName: q.Spec.NodeName, NodeUID: q.Spec.NodeUID,
			MaxExpirationSeconds: q.Spec.MaxExpirationSeconds, StubPKCS10Request: q.Spec.StubPKCS10Request,
			UnverifiedUserAnnotations: q.Spec.UnverifiedUserAnnotations,
		},
	}
	err = i.cfg.Client.Create(ctx, kubeapi.PodCertificateRequestsV1beta1, k, b, b)
	return b.Name, true, err
}

// read returns the status of a request, in the version in which it was made.
func (i *CertificateIssuer) read(ctx context.Context, namespace string, q *request) (*certificatesv1.PodCertificateRequestStatus, error) {
	k := kubeapi.Key{Namespace: namespace, Name: q.name}
	if q.beta {
		got := &certificatesv1beta1.PodCertificateRequest{}
		err := i.cfg.Client.Get(ctx, kubeapi.PodCertificateRequestsV1beta1, k, got)
		return (*certificatesv1.PodCertificateRequestStatus)(&got.Status), err
	}
	got := &certificatesv1.PodCertificateRequest{}
	err := i.cfg.Client.Get(ctx, kubeapi.PodCertificateRequests, k, got)
	return &got.Status, err
}

// unserved reports whether an error means that the API server does not serve the resource. Its
// answer is then a 404 that is not a Status.
func unserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// look reads the pending request, and stores the certificate or the refusal if the
// request has one.
func (i *CertificateIssuer) look(ctx context.Context, pod *v1.Pod, r *certificateRecord) error {
	q := r.request
	status, err := i.read(ctx, pod.Namespace, q)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && (q.seen || time.Since(q.made) > abandonAfter):
		r.request = nil
		return fmt.Errorf("PodCertificateRequest %s was deleted: %w", q.name, errNotIssued)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", errNotIssued, err)
	case err != nil:
		return fmt.Errorf("get PodCertificateRequest %s: %w", q.name, err)
	}
	q.seen = true
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionFalse {
			continue
		}
		switch c.Type {
		case "Denied":
			return i.refuse(pod, r, "denied", "was denied", &c)
		case "Failed":
			return i.refuse(pod, r, "failed", "failed", &c)
		case "Issued":
			return i.take(r, status)
		}
	}
	return fmt.Errorf("PodCertificateRequest %s: %w", q.name, errNotIssued)
}

// refuse records that a request was denied or failed: no further request is made for the
// source.
func (i *CertificateIssuer) refuse(pod *v1.Pod, r *certificateRecord, state, how string, c *metav1.Condition) error {
	err := fmt.Errorf("PodCertificateRequest %s/%s %s, reason=%q, message=%q", pod.Namespace, r.request.name, how, cut(c.Reason), cut(c.Message))
	i.set(func() { r.refused, r.state, r.request = err, state, nil })
	i.tell(pod, c.Type, err.Error())
	return err
}

// take stores an issued certificate. If the certificate is invalid, no new request is made until
// the API server has deleted this one: the signer would issue the same certificate.
func (i *CertificateIssuer) take(r *certificateRecord, s *certificatesv1.PodCertificateRequestStatus) error {
	if s.BeginRefreshAt == nil || s.NotAfter == nil {
		return fmt.Errorf("PodCertificateRequest %s was issued without beginRefreshAt and notAfter", r.request.name)
	}
	chain, err := cleaned(s.CertificateChain, r.request.public)
	if err != nil {
		return fmt.Errorf("PodCertificateRequest %s: %w", r.request.name, err)
	}
	begin := s.BeginRefreshAt.Add(rand.N(jitter))
	i.set(func() {
		r.key, r.chain, r.refreshAt, r.notAfter = r.request.key, chain, begin, s.NotAfter.Time
		r.overdue, r.expired, r.request = false, false, nil
	})
	return nil
}

func cut(s string) string {
	if len(s) > maxWords {
		return s[:maxWords] + "..."
	}
	return s
}
