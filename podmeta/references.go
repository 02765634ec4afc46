package podmeta

import v1 "k8s.io/api/core/v1"

// Reference names an object of the pod's namespace that a pod refers to.
type Reference struct {
	Kind string // "ConfigMap", "Secret", "PersistentVolumeClaim" or "ResourceClaim"
	Name string
	// Optional reports that the pod runs even if the object does not exist.
	Optional bool
}

// References returns the objects to which a pod refers, each once: for volumes (including projected
// volumes, CSI volumes and claims), the environment of all its containers, image pulls, and
// devices.
func References(p *v1.Pod) []Reference {
	var r references
	for i := range p.Spec.Volumes {
		r.volume(&p.Spec.Volumes[i])
		if p.Spec.Volumes[i].Ephemeral != nil {
			r.add("PersistentVolumeClaim", p.Name+"-"+p.Spec.Volumes[i].Name, nil) // KEP-1698
		}
	}
	for i := range p.Spec.InitContainers {
		r.environment(p.Spec.InitContainers[i].Env, p.Spec.InitContainers[i].EnvFrom)
	}
	for i := range p.Spec.Containers {
		r.environment(p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom)
	}
	for i := range p.Spec.EphemeralContainers {
		r.environment(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom)
	}
	optional := true // an image may be there, or need no credentials
	for _, s := range p.Spec.ImagePullSecrets {
		r.add("Secret", s.Name, &optional)
	}
	r.resources(p)
	return r.all
}

type references struct{ all []Reference }

// add adds an object once. The object is optional only if every reference to it is optional.
func (r *references) add(kind, name string, optional *bool) {
	if name == "" {
		return
	}
	may := optional != nil && *optional
	for i := range r.all {
		if o := &r.all[i]; o.Kind == kind && o.Name == name {
			o.Optional = o.Optional && may
			return
		}
	}
	r.all = append(r.all, Reference{kind, name, may})
}

// resources adds the ResourceClaims of a pod: those that it names, those
// generated for it from templates, and the one that the scheduler created for its
// extended resources (KEP-4381, KEP-5004).
func (r *references) resources(p *v1.Pod) {
	for i := range p.Spec.ResourceClaims {
		rc := &p.Spec.ResourceClaims[i]
		if rc.ResourceClaimName != nil {
			r.add("ResourceClaim", *rc.ResourceClaimName, nil)
			continue
		}
		// The controller stores the name of the generated claim there (KEP-4381);
		// before that there is no claim.
		for _, st := range p.Status.ResourceClaimStatuses {
			if st.Name == rc.Name && st.ResourceClaimName != nil {
				r.add("ResourceClaim", *st.ResourceClaimName, nil)
			}
		}
	}
	if st := p.Status.ExtendedResourceClaimStatus; st != nil {
		r.add("ResourceClaim", st.ResourceClaimName, nil)
	}
}

// volume adds the objects of one volume.
func (r *references) volume(v *v1.Volume) {
	if c := v.ConfigMap; c != nil {
		r.add("ConfigMap", c.Name, c.Optional)
	}
	if s := v.Secret; s != nil {
		r.add("Secret", s.SecretName, s.Optional)
	}
	if c := v.PersistentVolumeClaim; c != nil {
		r.add("PersistentVolumeClaim", c.ClaimName, nil)
	}
	if c := v.CSI; c != nil && c.NodePublishSecretRef != nil {
		r.add("Secret", c.NodePublishSecretRef.Name, nil)
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		src := &v.Projected.Sources[i]
		if c := src.ConfigMap; c != nil {
			r.add("ConfigMap", c.Name, c.Optional)
		}
		if s := src.Secret; s != nil {
			r.add("Secret", s.Name, s.Optional)
		}
	}
}

// environment adds the objects of one container's environment.
func (r *references) environment(env []v1.EnvVar, from []v1.EnvFromSource) {
	for i := range env {
		f := env[i].ValueFrom
		if f == nil {
			continue
		}
		if c := f.ConfigMapKeyRef; c != nil {
			r.add("ConfigMap", c.Name, c.Optional)
		}
		if s := f.SecretKeyRef; s != nil {
			r.add("Secret", s.Name, s.Optional)
		}
	}
	for i := range from {
		if c := from[i].ConfigMapRef; c != nil {
			r.add("ConfigMap", c.Name, c.Optional)
		}
		if s := from[i].SecretRef; s != nil {
			r.add("Secret", s.Name, s.Optional)
		}
	}
}
