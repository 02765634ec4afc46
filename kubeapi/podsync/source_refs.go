package podsync

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Ref names an object that a pod refers to.
type Ref struct {
	Kind      string // "ConfigMap", "Secret", "PersistentVolumeClaim", "PersistentVolume" or "ResourceClaim"
	Namespace string // "" of a PersistentVolume
	Name      string
}

const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindClaim     = "PersistentVolumeClaim"
	kindVolume    = "PersistentVolume"
	kindResource  = "ResourceClaim"
)

// refsOf returns the objects to which a pod refers and that it may still need, each
// once: for volumes (projected and CSI ones and claims included), the environment
// of all its containers, image pulls, and devices.
func refsOf(p *v1.Pod) []Ref {
	// The objects of a mirror pod come from the static pod's source; a pod that has
	// ended starts nothing.
	if podmeta.IsMirror(p) || podmeta.IsTerminal(p.Status.Phase) {
		return nil
	}
	var out []Ref
	seen := map[Ref]bool{}
	add := func(kind, name string) {
		r := Ref{kind, p.Namespace, name}
		if name != "" && !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	for i := range p.Spec.Volumes {
		volumeRefs(&p.Spec.Volumes[i], add)
		if p.Spec.Volumes[i].Ephemeral != nil {
			add(kindClaim, p.Name+"-"+p.Spec.Volumes[i].Name) // KEP-1698
		}
	}
	for i := range p.Spec.InitContainers {
		envRefs(p.Spec.InitContainers[i].Env, p.Spec.InitContainers[i].EnvFrom, add)
	}
	for i := range p.Spec.Containers {
		envRefs(p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom, add)
	}
	for i := range p.Spec.EphemeralContainers {
		envRefs(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom, add)
	}
	for _, s := range p.Spec.ImagePullSecrets {
		add(kindSecret, s.Name)
	}
	resourceRefs(p, add)
	return out
}

// resourceRefs adds the ResourceClaims of a pod: those that it names, those
// generated for it from templates, and the one that the scheduler created for its
// extended resources (KEP-4381, KEP-5004).
func resourceRefs(p *v1.Pod, add func(kind, name string)) {
	for i := range p.Spec.ResourceClaims {
		rc := &p.Spec.ResourceClaims[i]
		if rc.ResourceClaimName != nil {
			add(kindResource, *rc.ResourceClaimName)
			continue
		}
		// The controller stores the name of the generated claim there (KEP-4381);
		// before that there is no claim.
		for _, st := range p.Status.ResourceClaimStatuses {
			if st.Name == rc.Name && st.ResourceClaimName != nil {
				add(kindResource, *st.ResourceClaimName)
			}
		}
	}
	if st := p.Status.ExtendedResourceClaimStatus; st != nil {
		add(kindResource, st.ResourceClaimName)
	}
}

// volumeRefs adds the objects of one volume. Optional ones are among them: they are
// used if they are there.
func volumeRefs(v *v1.Volume, add func(kind, name string)) {
	if c := v.ConfigMap; c != nil {
		add(kindConfigMap, c.Name)
	}
	if s := v.Secret; s != nil {
		add(kindSecret, s.SecretName)
	}
	if c := v.PersistentVolumeClaim; c != nil {
		add(kindClaim, c.ClaimName)
	}
	if c := v.CSI; c != nil && c.NodePublishSecretRef != nil {
		add(kindSecret, c.NodePublishSecretRef.Name)
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		src := &v.Projected.Sources[i]
		if c := src.ConfigMap; c != nil {
			add(kindConfigMap, c.Name)
		}
		if s := src.Secret; s != nil {
			add(kindSecret, s.Name)
		}
	}
}

// envRefs adds the objects of one container's environment.
func envRefs(env []v1.EnvVar, from []v1.EnvFromSource, add func(kind, name string)) {
	for i := range env {
		f := env[i].ValueFrom
		if f == nil {
			continue
		}
		if c := f.ConfigMapKeyRef; c != nil {
			add(kindConfigMap, c.Name)
		}
		if s := f.SecretKeyRef; s != nil {
			add(kindSecret, s.Name)
		}
	}
	for i := range from {
		if c := from[i].ConfigMapRef; c != nil {
			add(kindConfigMap, c.Name)
		}
		if s := from[i].SecretRef; s != nil {
			add(kindSecret, s.Name)
		}
	}
}
