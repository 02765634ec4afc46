package kubeapi

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodewright/nodewright/internal/retry"
)

// CredentialsAPI makes the calls; [Client] implements it.
type CredentialsAPI interface {
	Create(ctx context.Context, r Resource, k Key, obj, into runtime.Object, subresources ...string) error
	Get(ctx context.Context, r Resource, k Key, into runtime.Object, opts ...metav1.GetOptions) error
	Watch(ctx context.Context, r Resource, namespace string, opts metav1.ListOptions) (watch.Interface, error)
}

// Errors of a request that will never get a certificate: the next try needs a new key.
var (
	ErrCertificateDenied = errors.New("the request was denied")
	ErrCertificateFailed = errors.New("the certificate request failed")
	errOther             = errors.New("another certificate request has that name")
)

// requestName returns the name of a request. It is derived from the key, the subject
// and the usages, so that a repeated request has the same name.
func requestName(public, subject []byte, usages []certificatesv1.KeyUsage) string {
	h := sha512.New512_256()
	for _, part := range [][]byte{public, subject} {
		fmt.Fprintf(h, "%d,", len(part))
		h.Write(part)
	}
	for _, u := range usages {
		fmt.Fprintf(h, "%d,%s", len(u), u)
	}
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// newRequest returns a CertificateSigningRequest for the content of t, signed by key.
func newRequest(key crypto.Signer, t *x509.CertificateRequest, signer string, usages []certificatesv1.KeyUsage) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, t, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	parsed, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: requestName(parsed.RawSubjectPublicKeyInfo, parsed.RawSubject, usages)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer, Usages: usages,
		},
	}, nil
}

// sameRequest reports whether an existing request has the same content and key.
func sameRequest(have, want *certificatesv1.CertificateSigningRequest) bool {
	a, b := decodeRequest(have), decodeRequest(want)
	return a != nil && b != nil && have.Spec.SignerName == want.Spec.SignerName && slices.Equal(have.Spec.Usages, want.Spec.Usages) &&
		bytes.Equal(a.RawSubjectPublicKeyInfo, b.RawSubjectPublicKeyInfo) && sameTemplate(a, b)
}

func decodeRequest(r *certificatesv1.CertificateSigningRequest) *x509.CertificateRequest {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil
	}
	return c
}

// issued returns the certificate of a request, or an error if the request was denied or failed.
// While the request is pending, both are nil.
func issued(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, c := range r.Status.Conditions {
		switch {
		case c.Status == v1.ConditionFalse:
		case c.Type == certificatesv1.CertificateDenied:
			return nil, fmt.Errorf("%w: %s: %s", ErrCertificateDenied, c.Reason, c.Message)
		case c.Type == certificatesv1.CertificateFailed:
			return nil, fmt.Errorf("%w: %s: %s", ErrCertificateFailed, c.Reason, c.Message)
		}
	}
	return r.Status.Certificate, nil
}

// sign creates a request and waits for its certificate, which may take until
// somebody approves it.
func sign(ctx context.Context, api CredentialsAPI, want *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	have, key := &certificatesv1.CertificateSigningRequest{}, Key{Name: want.Name}
	err := api.Create(ctx, CSRs, key, want, have)
	if apierrors.IsAlreadyExists(err) {
		have = &certificatesv1.CertificateSigningRequest{}
		if err = api.Get(ctx, CSRs, key, have); err == nil && !sameRequest(have, want) {
			return nil, fmt.Errorf("certificate request %s: %w", want.Name, errOther)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create certificate request: %w", err)
	}
	uid := have.UID
	for {
		cert, err := issued(have)
		if err != nil || len(cert) > 0 {
			return cert, err
		}
		if err := awaitChange(ctx, api, have); err != nil {
			return nil, fmt.Errorf("certificate request %s: not signed: %w", want.Name, err)
		}
		have = &certificatesv1.CertificateSigningRequest{}
		if err := api.Get(ctx, CSRs, key, have); err != nil {
			if ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsUnauthorized(err) {
				retry.Sleep(ctx, lookAgain)
				have = &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: key.Name, UID: uid}}
				continue // the server cannot be reached; the request still exists
			}
			return nil, fmt.Errorf("certificate request %s: %w", want.Name, err)
		}
		if have.UID != uid && uid != "" {
			return nil, fmt.Errorf("certificate request %s: %w", want.Name, errOther)
		}
	}
}

const (
	lookAgain = 5 * time.Second  // between two reads if a watch is not possible
	watchFor  = 60 * time.Second // limit of a watch; then the request is read again
)

// awaitChange waits until a request may have changed since it was read as have. It returns an error
// only if ctx ends.
func awaitChange(ctx context.Context, api CredentialsAPI, have *certificatesv1.CertificateSigningRequest) error {
	if have.ResourceVersion == "" {
		retry.Sleep(ctx, lookAgain)
		return ctx.Err()
	}
	watching, cancel := context.WithTimeout(ctx, watchFor)
	defer cancel()
	seconds := int64(watchFor / time.Second)
	w, err := api.Watch(watching, CSRs, "", metav1.ListOptions{
		FieldSelector: "metadata.name=" + have.Name, ResourceVersion: have.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		retry.Sleep(ctx, lookAgain)
		return ctx.Err()
	}
	defer w.Stop()
	began := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-watching.Done():
	case e, open := <-w.ResultChan():
		if brief := time.Since(began) < time.Second; brief && (!open || e.Type == watch.Error) {
			retry.Sleep(ctx, lookAgain)
		}
	}
	return ctx.Err()
}
