package fit

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// appArmor rejects pods that request an AppArmor profile on a machine without AppArmor, and pods
// with a localhost profile without a name. Only the runtime finds out whether the profile is
// loaded.
func (p *Node) appArmor(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if p.AppArmor == nil || !wantsAppArmor(pod) {
		return nil
	}
	if !p.AppArmor() {
		return &Rejection{Reason: "AppArmor", Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host", Final: true}
	}
	for profile := range appArmorProfiles(pod) {
		if profile.Type == v1.AppArmorProfileTypeLocalhost && (profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "") {
			return &Rejection{Reason: "AppArmor", Message: "Cannot enforce AppArmor: localhostProfile: empty, must name a profile that is loaded", Final: true}
		}
	}
	return nil
}

// wantsAppArmor reports whether a pod requests a profile, by a field or by the older annotations
// (KEP-24). The profile Unconfined does not count, since such a pod also runs without AppArmor.
func wantsAppArmor(pod *v1.Pod) bool {
	for profile := range appArmorProfiles(pod) {
		if profile.Type != v1.AppArmorProfileTypeUnconfined {
			return true
		}
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}

// appArmorProfiles yields the profiles in the fields of a pod, including ephemeral containers.
func appArmorProfiles(pod *v1.Pod) func(yield func(*v1.AppArmorProfile) bool) {
	return func(yield func(*v1.AppArmorProfile) bool) {
		if sc := pod.Spec.SecurityContext; sc != nil && sc.AppArmorProfile != nil && !yield(sc.AppArmorProfile) {
			return
		}
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if sc := list[i].SecurityContext; sc != nil && sc.AppArmorProfile != nil && !yield(sc.AppArmorProfile) {
					return
				}
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if sc := pod.Spec.EphemeralContainers[i].SecurityContext; sc != nil && sc.AppArmorProfile != nil && !yield(sc.AppArmorProfile) {
				return
			}
		}
	}
}
