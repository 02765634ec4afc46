package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

// protection is the finalizer that keeps a claim while a pod uses it.
const protection = "kubernetes.io/pvc-protection"

// ClaimSource reads claims and volumes. The results are not modified.
type ClaimSource interface {
	// Claim returns ErrNotFound if the claim does not exist.
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	// Volume returns ErrNotFound if the volume does not exist.
	Volume(ctx context.Context, name string) (*v1.PersistentVolume, error)
}

// ClaimResolverConfig configures a [ClaimResolver]. Source is required.
type ClaimResolverConfig struct {
	Source ClaimSource
	// Alone means that the node has no API server, and so no controller that binds claims or
	// creates those of ephemeral volumes.
	Alone bool
}

// ClaimResolver returns the persistent volumes to which pods' claims are bound.
//
//	c, err := plugins.NewClaimResolver(plugins.ClaimResolverConfig{Source: objects})
//	if err != nil {
//		return err
//	}
//	m, err := volumemgr.New(volumemgr.Config{Claims: c, ...})
//
// It resolves volumes that name a claim, and generic ephemeral volumes, whose claim is named
// <pod>-<volume> and is owned by the pod (KEP-1698).
//
// In a cluster, a controller binds claims and creates those of ephemeral volumes. Without an API
// server ([ClaimResolverConfig.Alone]), a claim is bound to a volume if each names the other, and
// an ephemeral volume is the volume that its template names.
//
// # Faults
//
// A ClaimResolver stores nothing. If an object cannot be read, the error names it; volumes that
// are mounted do not change, and the next sync of the pod tries again.
type ClaimResolver struct{ cfg ClaimResolverConfig }

var _ volumemgr.Claims = (*ClaimResolver)(nil)

// NewClaimResolver validates cfg and returns a ClaimResolver.
func NewClaimResolver(cfg ClaimResolverConfig) (*ClaimResolver, error) {
	if cfg.Source == nil {
		return nil, errors.New("claims: ClaimResolverConfig.Source is required")
	}
	return &ClaimResolver{cfg: cfg}, nil
}

// Resolve returns the persistent volume behind a volume of a pod.
func (r *ClaimResolver) Resolve(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*volumemgr.Spec, error) {
	claim, readOnly, err := r.claim(ctx, pod, vol)
	if err != nil {
		return nil, err
	}
	who := fmt.Sprintf("claim %s/%s", claim.Namespace, claim.Name)
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protection):
		return nil, fmt.Errorf("%s is being deleted", who)
	case claim.Spec.VolumeName == "":
		return nil, fmt.Errorf("%s is not bound: its spec.volumeName is empty", who)
	case !r.bound(claim):
		return nil, fmt.Errorf("%s is not bound: its phase is %q; want Bound", who, claim.Status.Phase)
	}
	pv, err := r.cfg.Source.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("%s: persistent volume %s: %w", who, claim.Spec.VolumeName, err)
	}
	if err := r.names(pv, claim); err != nil {
		return nil, fmt.Errorf("%s: persistent volume %s %w", who, pv.Name, err)
	}
	return &volumemgr.Spec{PersistentVolume: pv, ReadOnly: readOnly}, nil
}

// claim reads the PersistentVolumeClaim of a volume. The bool reports whether the pod wants it
// read-only.
func (r *ClaimResolver) claim(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*v1.PersistentVolumeClaim, bool, error) {
	if c := vol.PersistentVolumeClaim; c != nil {
		claim, err := r.cfg.Source.Claim(ctx, pod.Namespace, c.ClaimName)
		if err != nil {
			return nil, false, fmt.Errorf("claim %s/%s: %w", pod.Namespace, c.ClaimName, err)
		}
		return claim, c.ReadOnly, nil
	}
	if vol.Ephemeral == nil {
		return nil, false, fmt.Errorf("volume %s names no claim", vol.Name)
	}
	name := pod.Name + "-" + vol.Name
	claim, err := r.cfg.Source.Claim(ctx, pod.Namespace, name)
	if r.cfg.Alone && errors.Is(err, ErrNotFound) {
		return fromTemplate(pod, vol, name), false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("claim %s/%s of the ephemeral volume: %w", pod.Namespace, name, err)
	}
	if !metav1.IsControlledBy(claim, pod) {
		return nil, false, fmt.Errorf("claim %s/%s was not created for the pod: the pod is not its owner", pod.Namespace, name)
	}
	return claim, false, nil
}

// fromTemplate returns the claim that a controller would create.
func fromTemplate(pod *v1.Pod, vol *v1.Volume, name string) *v1.PersistentVolumeClaim {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name}}
	if t := vol.Ephemeral.VolumeClaimTemplate; t != nil {
		claim.Spec = *t.Spec.DeepCopy()
	}
	return claim
}

// bound reports whether a claim is bound, by its own fields.
func (r *ClaimResolver) bound(claim *v1.PersistentVolumeClaim) bool {
	phase := claim.Status.Phase
	return phase == v1.ClaimBound || r.cfg.Alone && (phase == "" || phase == v1.ClaimPending)
}

// names returns nil if a volume is bound to the claim. Otherwise the error says why it is not.
func (r *ClaimResolver) names(pv *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	switch {
	case ref == nil:
		return errors.New("is bound to no claim: its spec.claimRef is missing")
	case ref.Namespace != claim.Namespace || ref.Name != claim.Name:
		return fmt.Errorf("is bound to claim %s/%s", ref.Namespace, ref.Name)
	case ref.UID != claim.UID && !(r.cfg.Alone && (ref.UID == "" || claim.UID == "")): // manifests from files have no UIDs
		return fmt.Errorf("is bound to another claim of that name (UID %s, want %s)", ref.UID, claim.UID)
	}
	return nil
}
