package podsync_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/podmeta"
)

// lab is an Issuer with a server, a signer and what pods were told.
type lab struct {
	t      *testing.T
	srv    *kubeapitest.Server
	issuer *podsync.CertificateIssuer
	reg    *prometheus.Registry
	told   []string
	pod    *v1.Pod
	ca     *ecdsa.PrivateKey
}

func (l *lab) Event(_ *v1.Pod, kind, reason, message string) {
	l.told = append(l.told, kind+" "+reason+": "+message)
}

func newLab(t *testing.T, keyType string) *lab {
	t.Helper()
	return newLabOf(t, keyType, func(rt http.RoundTripper) http.RoundTripper { return rt })
}

// newLabOf is a lab whose server is reached through what between makes of its transport.
func newLabOf(t *testing.T, keyType string, between func(http.RoundTripper) http.RoundTripper) *lab {
	t.Helper()
	ca, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, srv: kubeapitest.New(), reg: prometheus.NewRegistry(), ca: ca}
	cfg := l.srv.Config()
	cfg.Transport = between(cfg.Transport)
	c, err := kubeapi.New(kubeapi.Config{REST: cfg})
	if err != nil {
		t.Fatal(err)
	}
	l.issuer, err = podsync.NewCertificateIssuer(podsync.CertificateConfig{
		Client: c.Once(), NodeName: "edge-1", Node: func() (types.UID, bool) { return "node-uid", true }, Events: l, Metrics: l.reg,
		ServiceAccount: func(_ context.Context, ns, name string) (*v1.ServiceAccount, error) {
			return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: "account-uid"}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	life := int32(7200)
	l.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "pod-uid"}, Spec: v1.PodSpec{
		ServiceAccountName: "robot",
		Volumes: []v1.Volume{{Name: "creds", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{PodCertificate: &v1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: keyType, MaxExpirationSeconds: &life,
				UserAnnotations: map[string]string{"example.com/a": "b"}}},
		}}}}},
	}}
	return l
}

func (l *lab) requests() (out []*certificatesv1.PodCertificateRequest) {
	for _, o := range l.srv.All(kubeapi.PodCertificateRequests) {
		out = append(out, o.(*certificatesv1.PodCertificateRequest))
	}
	return out
}

// pending is the request that has no answer.
func (l *lab) pending() *certificatesv1.PodCertificateRequest {
	for _, q := range l.requests() {
		if len(q.Status.Conditions) == 0 {
			return q
		}
	}
	return nil
}

// sign answers the pending request.
func (l *lab) sign(change func(*certificatesv1.PodCertificateRequestStatus)) {
	l.t.Helper()
	q := l.pending()
	if q == nil {
		l.t.Fatal("no request is pending")
	}
	l.issue(q.Name, q.Spec.StubPKCS10Request, &q.Status, change)
	l.srv.Put(q)
}

// issue writes a signer's answer into status.
func (l *lab) issue(name string, request []byte, status *certificatesv1.PodCertificateRequestStatus, change func(*certificatesv1.PodCertificateRequestStatus)) {
	l.t.Helper()
	stub, err := x509.ParseCertificateRequest(request)
	if err != nil || stub.CheckSignature() != nil {
		l.t.Fatalf("stub: %v, %v", err, stub.CheckSignature())
	}
	now := time.Now().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now, NotAfter: now.Add(2 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, stub.PublicKey, l.ca)
	if err != nil {
		l.t.Fatal(err)
	}
	begin := metav1.NewTime(now.Add(time.Hour))
	after := metav1.NewTime(template.NotAfter)
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: der})
	*status = certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue}},
		CertificateChain: "words\n" + string(chain), BeginRefreshAt: &begin, NotAfter: &after, NotBefore: &metav1.Time{Time: now},
	}
	if change != nil {
		change(status)
	}
}

func (l *lab) certificate() (key, chain string, err error) {
	k, c, err := l.issuer.Certificate(l.t.Context(), l.pod, "creds", 0)
	return string(k), string(c), err
}

// states are the metric's, as state=count.
func (l *lab) states() string {
	l.t.Helper()
	families, err := l.reg.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			out = append(out, fmt.Sprintf("%s %s %s=%v", f.GetName(), m.Label[0].GetValue(), m.Label[1].GetValue(), m.GetGauge().GetValue()))
		}
	}
	return strings.Join(out, ", ")
}

func (l *lab) wantState(state string) {
	l.t.Helper()
	if got, want := l.states(), "kubelet_podcertificate_states example.com/signer "+state+"=1"; got != want {
		l.t.Errorf("states: %s; want %s", got, want)
	}
}

// begun is a lab with a pod that has its first certificate.
func begun(t *testing.T) (l *lab, key, chain string) {
	t.Helper()
	l = newLab(t, "ED25519")
	go func() { time.Sleep(3 * time.Second); l.sign(nil) }()
	key, chain, err := l.certificate()
	if err != nil {
		t.Fatal(err)
	}
	return l, key, chain
}

func TestEachTypeOfKeyHasItsCertificate(t *testing.T) {
	for _, typ := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, typ)
			go func() { time.Sleep(3 * time.Second); l.sign(nil) }()
			key, chain, err := l.certificate()
			if err != nil {
				t.Fatalf("%s: %v", typ, err)
			}
			if _, err := tls.X509KeyPair([]byte(chain), []byte(key)); err != nil {
				t.Errorf("%s: %v", typ, err)
			}
			if !strings.HasPrefix(chain, "-----BEGIN CERTIFICATE-----\n") || strings.Contains(chain, "a: b") || !strings.HasPrefix(key, "-----BEGIN PRIVATE KEY-----\n") {
				t.Errorf("%s: key or chain is not as the API says:\n%s", typ, chain)
			}
			l.wantState("fresh")
		})
	}
}

// without answers requests for a version of certificates.k8s.io as an API server that
// does not serve them, in words that are no Status.
type without struct {
	http.RoundTripper
	versions []string
}

func (w without) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, v := range w.versions {
		if strings.HasPrefix(r.URL.Path, "/apis/certificates.k8s.io/"+v+"/") {
			return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Request: r,
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader("404 page not found\n"))}, nil
		}
	}
	return w.RoundTripper.RoundTrip(r)
}

func TestServerWithoutV1IsAskedInV1beta1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabOf(t, "ECDSAP256", func(rt http.RoundTripper) http.RoundTripper { return without{rt, []string{"v1"}} })
		go func() {
			time.Sleep(3 * time.Second)
			for _, o := range l.srv.All(kubeapi.PodCertificateRequestsV1beta1) {
				q := o.(*certificatesv1beta1.PodCertificateRequest)
				l.issue(q.Name, q.Spec.StubPKCS10Request, (*certificatesv1.PodCertificateRequestStatus)(&q.Status), nil)
				l.srv.Put(q)
			}
		}()
		key, chain, err := l.certificate()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tls.X509KeyPair([]byte(chain), []byte(key)); err != nil {
			t.Error(err)
		}
		if n := len(l.srv.All(kubeapi.PodCertificateRequestsV1beta1)); n != 1 || len(l.requests()) != 0 {
			t.Errorf("%d requests in v1beta1, %d in v1; want 1 and 0", n, len(l.requests()))
		}
	})
}

func TestServerWithV1IsNotAskedInV1beta1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := begun(t)
		if n := l.srv.Count("create", kubeapi.PodCertificateRequestsV1beta1); n != 0 {
			t.Errorf("%d requests in v1beta1", n)
		}
	})
}

func TestServerWithoutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLabOf(t, "ED25519", func(rt http.RoundTripper) http.RoundTripper { return without{rt, []string{"v1", "v1beta1"}} })
		if _, _, err := l.certificate(); err == nil || !strings.Contains(err.Error(), "does not serve PodCertificateRequests (certificates.k8s.io/v1 or v1beta1)") {
			t.Errorf("error: %v", err)
		}
	})
}

func TestRequestNamesPodAccountAndNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := begun(t)
		q := l.requests()[0]
		s := q.Spec
		if s.SignerName != "example.com/signer" || s.PodName != "web" || s.PodUID != "pod-uid" || s.ServiceAccountName != "robot" || s.ServiceAccountUID != "account-uid" ||
			s.NodeName != "edge-1" || s.NodeUID != "node-uid" || *s.MaxExpirationSeconds != 7200 || s.UnverifiedUserAnnotations["example.com/a"] != "b" {
			t.Errorf("spec: %+v", s)
		}
		if q.Namespace != "ns" || len(q.OwnerReferences) != 1 || q.OwnerReferences[0].UID != "pod-uid" {
			t.Errorf("metadata: %+v", q.ObjectMeta)
		}
	})
}

func TestNoAnswerIsWaitedForWithOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "ED25519")
		for range 3 {
			begin := time.Now()
			if _, _, err := l.certificate(); err == nil || !strings.Contains(err.Error(), "not been issued yet") {
				t.Errorf("error: %v", err)
			}
			if d := time.Since(begin); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
		}
		if n := len(l.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		l.wantState("not_yet_issued")
	})
}

func TestRefreshHasANewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, key, chain := begun(t)
		time.Sleep(59 * time.Minute)
		if k, c, err := l.certificate(); k != key || c != chain || err != nil || len(l.requests()) != 1 {
			t.Errorf("before beginRefreshAt: %v, %d requests", err, len(l.requests()))
		}
		time.Sleep(7 * time.Minute) // the jitter is five at most
		begin := time.Now()
		if k, c, err := l.certificate(); k != key || c != chain || err != nil || len(l.requests()) != 2 {
			t.Errorf("while the next one is asked for: %v, %d requests", err, len(l.requests()))
		}
		if d := time.Since(begin); d > 0 {
			t.Errorf("a pod with a certificate waited %v for the next one", d)
		}
		l.wantState("fresh")
		l.sign(nil)
		k, c, err := l.certificate()
		if err != nil || k == key || c == chain {
			t.Errorf("after the refresh: %v, the same key %v", err, k == key)
		}
		if len(l.told) > 0 {
			t.Errorf("events: %q", l.told)
		}
	})
}

func TestLateRefreshIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, key, _ := begun(t)
		time.Sleep(76 * time.Minute)
		for range 3 {
			if k, _, err := l.certificate(); k != key || err != nil {
				t.Errorf("error: %v", err)
			}
		}
		l.wantState("overdue_for_refresh")
		time.Sleep(time.Hour)
		for range 3 {
			_, _, _ = l.certificate()
		}
		l.wantState("expired")
		want := []string{"Warning CertificateOverdueForRefresh: PodCertificate refresh overdue", "Warning CertificateExpired: PodCertificate expired"}
		if !slices.Equal(l.told, want) {
			t.Errorf("events: %q", l.told)
		}
	})
}

func TestRefusalIsFinal(t *testing.T) {
	for kind, state := range map[string]string{"Denied": "denied", "Failed": "failed"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, "ED25519")
			go func() {
				time.Sleep(time.Second)
				l.sign(func(s *certificatesv1.PodCertificateRequestStatus) {
					*s = certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{{
						Type: kind, Status: metav1.ConditionTrue, Reason: "UnsupportedKeyType", Message: strings.Repeat("x", 1<<16)}}}
				})
			}()
			for range 3 {
				_, _, err := l.certificate()
				if err == nil || !strings.Contains(err.Error(), `reason="UnsupportedKeyType"`) || len(err.Error()) > 2048 {
					t.Errorf("%s: %.200v", kind, err)
				}
				time.Sleep(time.Hour)
			}
			if len(l.requests()) != 1 || len(l.told) != 1 || !strings.HasPrefix(l.told[0], "Warning "+kind+": ") {
				t.Errorf("%d requests, events %.200q", len(l.requests()), l.told)
			}
			l.wantState(state)
		})
	}
}

func TestDeletedRequestIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, "ED25519")
		go func() {
			time.Sleep(time.Second)
			l.srv.Remove(kubeapi.PodCertificateRequests, "ns", l.pending().Name)
			time.Sleep(4 * time.Second)
			l.sign(nil)
		}()
		if _, _, err := l.certificate(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWrongChains(t *testing.T) {
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, other.Public(), other)
	if err != nil {
		t.Fatal(err)
	}
	foreign := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	for name, tc := range map[string]struct {
		change func(*certificatesv1.PodCertificateRequestStatus)
		want   string
	}{
		"none":        {func(s *certificatesv1.PodCertificateRequestStatus) { s.CertificateChain = "" }, "no certificate"},
		"foreign key": {func(s *certificatesv1.PodCertificateRequestStatus) { s.CertificateChain = foreign }, "not for the request's key"},
		"no DER": {func(s *certificatesv1.PodCertificateRequestStatus) {
			s.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
		}, "certificate 1"},
		"a key": {func(s *certificatesv1.PodCertificateRequestStatus) {
			s.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}))
		}, "want CERTIFICATE"},
		"too many": {func(s *certificatesv1.PodCertificateRequestStatus) {
			s.CertificateChain = strings.Repeat(s.CertificateChain, 40)
		}, "more than 32"},
		"no times": {func(s *certificatesv1.PodCertificateRequestStatus) { s.NotAfter = nil }, "without beginRefreshAt"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, "ED25519")
			go func() { time.Sleep(time.Second); l.sign(tc.change) }()
			if _, _, err := l.certificate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v; want %q", name, err, tc.want)
			}
		})
	}
}

func TestForgottenVolumeHasANewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, key, _ := begun(t)
		l.issuer.ForgetVolume("pod-uid", "creds")
		if s := l.states(); s != "" {
			t.Errorf("states: %s", s)
		}
		go func() { time.Sleep(time.Second); l.sign(nil) }()
		if k, _, err := l.certificate(); err != nil || k == key {
			t.Errorf("error %v, the same key %v", err, k == key)
		}
	})
}

func TestWhoHasNone(t *testing.T) {
	l := newLab(t, "RSA1024")
	if _, _, err := l.certificate(); err == nil || !strings.Contains(err.Error(), `keyType is "RSA1024"`) {
		t.Errorf("keyType: %v", err)
	}
	if _, _, err := l.issuer.Certificate(t.Context(), l.pod, "creds", 1); err == nil || !strings.Contains(err.Error(), "source 1") {
		t.Errorf("source: %v", err)
	}
	l.pod.Annotations = map[string]string{podmeta.AnnotationSource: "file"}
	if _, _, err := l.certificate(); err == nil || !strings.Contains(err.Error(), "static pods") {
		t.Errorf("static pod: %v", err)
	}
}
