package dra

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The claims of a pod, from its spec, and from the fields of its status that name generated
// claims.

// want is a claim that a pod uses.
type want struct {
	claim string // name of the ResourceClaim in the pod's namespace
	// generated means that the claim was created for this pod and must be owned by it. A claim
	// with that name and another owner is rejected.
	generated bool // made from a template, for this pod alone
	// uses may be empty: a claim that no container uses is prepared anyway.
	uses []Use
}

// Use is the use of a claim by one container.
type Use struct {
	Container string `json:"container"`
	// Claim is the name in spec.resourceClaims. It is "" for extended resources.
	Claim string `json:"claim,omitempty"`
	// Request is a request of the claim. "" means all requests.
	Request string `json:"request,omitempty"`
}

// wantsOf returns the claims that a pod uses, without duplicates, in the pod's order. Errors are
// [*ClaimError]. One of them says that a claim is not generated yet, which a later update of the
// pod resolves.
func wantsOf(pod *v1.Pod) ([]want, error) {
	var list []want
	add := func(claim string, generated bool) int {
		i := slices.IndexFunc(list, func(w want) bool { return w.claim == claim })
		if i < 0 {
			i, list = len(list), append(list, want{claim: claim})
		}
		list[i].generated = list[i].generated || generated
		return i
	}
	// Two entries of the spec may name the same claim, and containers refer to entries.
	at := map[string]int{} // index in list; -1: no claim is needed
	for i := range pod.Spec.ResourceClaims {
		rc := &pod.Spec.ResourceClaims[i]
		name, generated, err := claimName(pod, rc)
		switch {
		case err != nil:
			return nil, &ClaimError{rc.Name, err}
		case name == "":
			at[rc.Name] = -1
		default:
			at[rc.Name] = add(name, generated)
		}
	}
	for _, c := range containers(pod) {
		for _, rc := range c.Resources.Claims {
			i, known := at[rc.Name]
			if !known {
				return nil, &ClaimError{rc.Name, fmt.Errorf("container %s uses the claim, but spec.resourceClaims has no entry with this name", c.Name)}
			}
			if i >= 0 {
				list[i].uses = append(list[i].uses, Use{Container: c.Name, Claim: rc.Name, Request: rc.Request})
			}
		}
	}
	// A claim that the scheduler created for extended resources has no entry in the spec. The
	// status has its name and the containers that use it (KEP-5004).
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil {
		i := add(st.ResourceClaimName, false)
		for _, r := range st.RequestMappings {
			if Claimed(pod, r.ContainerName, r.ResourceName) {
				list[i].uses = append(list[i].uses, Use{Container: r.ContainerName, Request: r.RequestName})
			}
		}
	}
	return list, nil
}

// claimName returns the name of the ResourceClaim for an entry of spec.resourceClaims, or "" if
// none is needed.
func claimName(pod *v1.Pod, rc *v1.PodResourceClaim) (name string, generated bool, err error) {
	switch {
	case rc.ResourceClaimName != nil && *rc.ResourceClaimName != "":
		return *rc.ResourceClaimName, false, nil
	case rc.ResourceClaimTemplateName == nil:
		return "", false, errors.New("resourceClaimName and resourceClaimTemplateName are missing; want one of them")
	}
	// An entry without a name means that this pod needs no claim. A missing entry means that the
	// claim is not generated yet.
	for _, st := range pod.Status.ResourceClaimStatuses {
		switch {
		case st.Name != rc.Name:
		case st.ResourceClaimName == nil:
			return "", true, nil
		default:
			return *st.ResourceClaimName, true, nil
		}
	}
	return "", true, fmt.Errorf("not generated yet from template %s: status.resourceClaimStatuses has no entry for it", *rc.ResourceClaimTemplateName)
}

// containers returns the containers that can use claims. Ephemeral containers have no resources.
func containers(pod *v1.Pod) []*v1.Container {
	var list []*v1.Container
	for i := range pod.Spec.InitContainers {
		list = append(list, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		list = append(list, &pod.Spec.Containers[i])
	}
	return list
}

// Claimed reports whether a container gets an extended resource from a claim that the scheduler
// created (KEP-5004), instead of from a device plugin. A mapping for a container that does not
// request the resource is ignored.
func Claimed(pod *v1.Pod, container, resource string) bool {
	st := pod.Status.ExtendedResourceClaimStatus
	if st == nil || !slices.ContainsFunc(st.RequestMappings, func(r v1.ContainerExtendedResourceRequest) bool {
		return r.ContainerName == container && r.ResourceName == resource
	}) {
		return false
	}
	for _, c := range containers(pod) {
		if c.Name == container {
			asked := c.Resources.Requests[v1.ResourceName(resource)]
			if asked.IsZero() { // without a request, the limit counts
				asked = c.Resources.Limits[v1.ResourceName(resource)]
			}
			return !asked.IsZero()
		}
	}
	return false
}

// check returns an error if a pod may not use a claim. The scheduler makes the same check; the
// node repeats it, since other programs can bind pods too.
func (w want) check(pod *v1.Pod, c *resourceapi.ResourceClaim) error {
	switch {
	case checkUID(c.UID) != nil:
		return checkUID(c.UID)
	case w.generated && !metav1.IsControlledBy(c, pod):
		return fmt.Errorf("a ResourceClaim of this name exists, but was not generated for the pod (UID %s)", pod.UID)
	case c.Status.Allocation == nil:
		return errors.New("not allocated")
	case !slices.ContainsFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool {
		return r.UID == pod.UID && r.Resource == "pods" && r.APIGroup == ""
	}):
		return fmt.Errorf("pod %s (UID %s) may not use the claim: status.reservedFor does not contain the pod", pod.Name, pod.UID)
	}
	for _, d := range driversOf(c) {
		if err := checkDriver(d); err != nil {
			return err
		}
	}
	return nil
}

// driversOf returns the drivers of the claim's allocated devices, sorted.
func driversOf(c *resourceapi.ResourceClaim) []string {
	var names []string
	for i := range c.Status.Allocation.Devices.Results {
		names = append(names, c.Status.Allocation.Devices.Results[i].Driver)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
