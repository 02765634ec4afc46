package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/internal/atomicdir"
)

// privateMode is the mode of a credential in a pod that sets its user; with fsGroup, the group
// can read it too.
const privateMode = 0o600

// projection builds one projected volume.
type projection struct {
	*Content
	v     *volumemgr.Volume
	src   *v1.ProjectedVolumeSource
	files files
	again time.Duration
}

// projected adds the files of all sources in order. The error has all mistakes.
func (p *Content) projected(ctx context.Context, v *volumemgr.Volume, src *v1.ProjectedVolumeSource) (files, time.Duration, error) {
	if src.DefaultMode == nil {
		return nil, 0, errNoMode
	}
	b := &projection{p, v, src, files{}, 0}
	var errs []error
	for i := range src.Sources {
		if err := b.source(ctx, i, &src.Sources[i]); err != nil {
			errs = append(errs, fmt.Errorf("projected source %d: %w", i, err))
		}
	}
	return b.files, b.again, errors.Join(errs...)
}

func (b *projection) source(ctx context.Context, i int, s *v1.VolumeProjection) error {
	switch {
	case s.Secret != nil:
		return b.object(ctx, kindSecret, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.ConfigMap != nil:
		return b.object(ctx, kindConfigMap, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.DownwardAPI != nil:
		return b.files.downward(b.v.Pod, s.DownwardAPI.Items, b.src.DefaultMode, b.allocatable())
	case s.ServiceAccountToken != nil:
		return b.token(ctx, s.ServiceAccountToken)
	case s.ClusterTrustBundle != nil:
		return b.bundle(ctx, s.ClusterTrustBundle)
	case s.PodCertificate != nil:
		return b.certificate(ctx, i, s.PodCertificate)
	}
	return errors.New("source is empty; want secret, configMap, downwardAPI, serviceAccountToken, clusterTrustBundle or podCertificate")
}

func (b *projection) object(ctx context.Context, kind, name string, items []v1.KeyToPath, optional *bool) error {
	o, err := b.get(ctx, kind, b.v.Pod.Namespace, name, optional)
	if err != nil {
		return err
	}
	return b.files.keys(kind, name, o, items, b.src.DefaultMode, optional)
}

// private adds a file that only the pod's users can read.
func (b *projection) private(path string, data []byte) {
	f := file{File: atomicdir.File{Data: data, Mode: modeOf(nil, b.src.DefaultMode), UID: b.v.FSUser}}
	if b.v.FSUser != nil || b.v.FSGroup != nil {
		f.Mode = privateMode
	}
	b.files.add(path, f)
}

func (b *projection) token(ctx context.Context, s *v1.ServiceAccountTokenProjection) error {
	if b.cfg.Tokens == nil {
		return errors.New("serviceAccountToken: no token source is configured")
	}
	pod := b.v.Pod
	spec := authv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}
	if s.Audience != "" {
		spec.Audiences = []string{s.Audience}
	}
	t, err := b.cfg.Tokens.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, spec)
	if err != nil {
		return err
	}
	if t.Refresh > 0 && (b.again == 0 || t.Refresh < b.again) {
		b.again = t.Refresh
	}
	b.private(s.Path, []byte(t.Value))
	return nil
}

func (b *projection) bundle(ctx context.Context, s *v1.ClusterTrustBundleProjection) error {
	var want Bundle
	switch {
	case s.Name != nil:
		want.Name = *s.Name
	case s.SignerName != nil:
		want.Signer, want.Selector = *s.SignerName, s.LabelSelector
	default:
		return errors.New("clusterTrustBundle: want name or signerName")
	}
	if b.cfg.Bundles == nil {
		return errors.New("clusterTrustBundle: no bundle source is configured")
	}
	pem, err := b.cfg.Bundles.Bundle(ctx, want)
	if errors.Is(err, ErrNotFound) && isTrue(s.Optional) {
		pem, err = nil, nil // the file exists and is empty
	}
	if err != nil {
		return fmt.Errorf("couldn't get clusterTrustBundle %q%q: %w", want.Name, want.Signer, err)
	}
	b.private(s.Path, pem)
	return nil
}

func (b *projection) certificate(ctx context.Context, i int, s *v1.PodCertificateProjection) error {
	if b.cfg.Certificates == nil {
		return errors.New("podCertificate: no certificate source is configured")
	}
	key, chain, err := b.cfg.Certificates.Certificate(ctx, b.v.Pod, b.v.Name, i)
	if err != nil {
		return fmt.Errorf("podCertificate of signer %q: %w", s.SignerName, err)
	}
	if s.CredentialBundlePath != "" {
		b.private(s.CredentialBundlePath, append(append([]byte{}, key...), chain...))
	}
	if s.KeyPath != "" {
		b.private(s.KeyPath, key)
	}
	if s.CertificateChainPath != "" {
		b.private(s.CertificateChainPath, chain)
	}
	return nil
}
