package podcheck

import (
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxID is the largest user or group ID (the API's documentation of runAsUser).
const maxID = math.MaxInt32

func (v *checker) id(p *field.Path, id *int64) {
	if id != nil && (*id < 0 || *id > maxID) {
		v.invalid(p, *id, "must be 0 to %d", maxID)
	}
}

func (v *checker) podSecurity(sc *v1.PodSecurityContext, p *field.Path) {
	v.id(p.Child("runAsUser"), sc.RunAsUser)
	v.id(p.Child("runAsGroup"), sc.RunAsGroup)
	v.id(p.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		if v.full() {
			return
		}
		v.id(p.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	v.seccomp(sc.SeccompProfile, p)
	v.appArmor(sc.AppArmorProfile, p)
}

func (v *checker) security(sc *v1.SecurityContext, p *field.Path) {
	v.id(p.Child("runAsUser"), sc.RunAsUser)
	v.id(p.Child("runAsGroup"), sc.RunAsGroup)
	v.seccomp(sc.SeccompProfile, p)
	v.appArmor(sc.AppArmorProfile, p)
	own := v.pod.Spec.HostUsers != nil && !*v.pod.Spec.HostUsers
	if sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount && !own {
		v.invalid(p.Child("procMount"), string(*sc.ProcMount), "needs spec.hostUsers: false")
	}
}

func (v *checker) seccomp(s *v1.SeccompProfile, p *field.Path) {
	if s == nil {
		return
	}
	p = p.Child("seccompProfile", "localhostProfile")
	switch name := s.LocalhostProfile; {
	case s.Type != v1.SeccompProfileTypeLocalhost && name != nil:
		v.invalid(p, *name, "may only be set if type is Localhost")
	case s.Type != v1.SeccompProfileTypeLocalhost:
	case name == nil || *name == "":
		v.add(field.Required(p, "with type Localhost"))
	case path.IsAbs(*name) || strings.Contains("/"+*name+"/", "/../"):
		v.invalid(p, *name, "must be a relative path without '..'")
	}
}

// maxProfile is the maximum length of the name of an AppArmor profile in bytes (the API's
// documentation of localhostProfile): PATH_MAX without the zero byte.
const maxProfile = 4095

func (v *checker) appArmor(a *v1.AppArmorProfile, p *field.Path) {
	if a == nil {
		return
	}
	p = p.Child("appArmorProfile", "localhostProfile")
	switch name := a.LocalhostProfile; {
	case a.Type != v1.AppArmorProfileTypeLocalhost && name != nil:
		v.invalid(p, *name, "may only be set if type is Localhost")
	case a.Type != v1.AppArmorProfileTypeLocalhost:
	case name == nil || strings.TrimSpace(*name) == "":
		v.add(field.Required(p, "with type Localhost"))
	case strings.TrimSpace(*name) != *name:
		v.invalid(p, *name, "must not begin or end with white space")
	case len(*name) > maxProfile:
		v.add(field.TooLong(p, "", maxProfile))
	}
}

// appArmorAnnotations rejects AppArmor annotations (KEP-24) that contradict the fields for
// AppArmor, which replaced the annotations. If such an annotation were ignored, the
// container would be less confined than the pod requests.
func (v *checker) appArmorAnnotations(containers map[string]*v1.Container) {
	const prefix = v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	for _, key := range slices.Sorted(maps.Keys(v.pod.Annotations)) {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if v.full() {
			return
		}
		p := field.NewPath("metadata", "annotations").Key(clip(key))
		c := containers[name]
		if c == nil {
			v.invalid(p, v.pod.Annotations[key], "does not name a container of the pod")
			continue
		}
		if want := annotationOf(v.profileOf(c)); v.pod.Annotations[key] != want {
			v.invalid(p, v.pod.Annotations[key], "must be absent or equal to securityContext.appArmorProfile, which takes precedence: %q", clip(want))
		}
	}
}

// profileOf returns the AppArmor profile of a container, or the profile of the pod if the container
// has none.
func (v *checker) profileOf(c *v1.Container) *v1.AppArmorProfile {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile
	}
	if sc := v.pod.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile
	}
	return nil
}

// annotationOf returns the value of the annotation for a profile. It returns "" if a is nil.
func annotationOf(a *v1.AppArmorProfile) string {
	switch {
	case a == nil:
		return ""
	case a.Type == v1.AppArmorProfileTypeRuntimeDefault:
		return v1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case a.Type == v1.AppArmorProfileTypeUnconfined:
		return v1.DeprecatedAppArmorBetaProfileNameUnconfined
	case a.LocalhostProfile != nil:
		return v1.DeprecatedAppArmorBetaProfileNamePrefix + *a.LocalhostProfile
	}
	return ""
}
