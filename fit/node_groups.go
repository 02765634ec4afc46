package fit

import (
	v1 "k8s.io/api/core/v1"
)

// groups rejects pods with supplementalGroupsPolicy Strict if the runtime does not support it
// (KEP-3619). While that is unknown, they are not rejected.
func (p *Node) groups(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	sc := pod.Spec.SecurityContext
	if p.GroupsPolicy == nil || sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if supported, known := p.GroupsPolicy(); supported || !known {
		return nil
	}
	return &Rejection{
		Reason: "SupplementalGroupsPolicyNotSupported", Final: true,
		Message: "spec.securityContext.supplementalGroupsPolicy: Strict is not supported by the container runtime, want Merge",
	}
}
