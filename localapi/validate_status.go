package localapi

import (
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/nodewright/nodewright/podmeta"
)

// checkStatus returns the mistakes in the status of o, with which a client replaces the
// status of old.
func (s *Server) checkStatus(o, old object) field.ErrorList {
	at := field.NewPath("status")
	switch o := o.(type) {
	case *v1.Pod:
		return checkPodStatus(o, old.(*v1.Pod), at)
	case *v1.Namespace:
		want := v1.NamespaceActive
		if o.DeletionTimestamp != nil {
			want = v1.NamespaceTerminating
		}
		if o.Status.Phase != want {
			return field.ErrorList{field.NotSupported(at.Child("phase"), o.Status.Phase, []v1.NamespacePhase{want})}
		}
	case *v1.PersistentVolumeClaim:
		return checkClaimStatus(&o.Status, at)
	case *resourcev1.ResourceClaim:
		return s.checkResourceClaimStatus(o, &old.(*resourcev1.ResourceClaim).Status, at)
	}
	return nil
}

// statuses has a pod's container statuses of one kind, and the containers of that kind.
type statuses struct {
	name    string
	is, was []v1.ContainerStatus
	of      []v1.Container
	debug   bool
}

func checkPodStatus(p, old *v1.Pod, at *field.Path) (errs field.ErrorList) {
	is, was := &p.Status, &old.Status
	counted := func(n int64, p *field.Path) {
		if n < 0 {
			errs = append(errs, field.Invalid(p, n, "must be 0 or more"))
		}
	}
	counted(is.ObservedGeneration, at.Child("observedGeneration"))
	for i, c := range is.Conditions {
		cp := at.Child("conditions").Index(i)
		counted(c.ObservedGeneration, cp.Child("observedGeneration"))
		for _, m := range validation.IsQualifiedName(string(c.Type)) {
			errs = append(errs, field.Invalid(cp.Child("type"), c.Type, m))
		}
	}
	if n, np := is.NominatedNodeName, at.Child("nominatedNodeName"); n != "" && n != was.NominatedNodeName {
		if old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(np, "the pod is on a node"))
		}
		for _, m := range validation.IsDNS1123Subdomain(n) {
			errs = append(errs, field.Invalid(np, n, m))
		}
	}
	errs = append(errs, apivalidation.ValidateImmutableField(is.QOSClass, was.QOSClass, at.Child("qosClass"))...)
	for _, l := range []statuses{
		{"initContainerStatuses", is.InitContainerStatuses, was.InitContainerStatuses, p.Spec.InitContainers, false},
		{"containerStatuses", is.ContainerStatuses, was.ContainerStatuses, p.Spec.Containers, false},
		{"ephemeralContainerStatuses", is.EphemeralContainerStatuses, was.EphemeralContainerStatuses, nil, true},
	} {
		errs = append(errs, checkStatuses(p, &l, at.Child(l.name))...)
	}
	errs = append(errs, checkClaimsOfPod(p, at)...)
	ips := func(list []v1.PodIP) (out []string) {
		for _, ip := range list {
			out = append(out, ip.IP)
		}
		return out
	}
	hosts := func(list []v1.HostIP) (out []string) {
		for _, ip := range list {
			out = append(out, ip.IP)
		}
		return out
	}
	errs = append(errs, checkAddresses(is.PodIP, ips(is.PodIPs), ips(was.PodIPs), at.Child("podIPs"))...)
	if len(is.HostIPs) > 0 {
		errs = append(errs, checkAddresses(is.HostIP, hosts(is.HostIPs), hosts(was.HostIPs), at.Child("hostIPs"))...)
	}
	return errs
}

// checkAddresses checks the addresses of a pod or its host: first must be the first of list, and
// there is at most one of each family. Addresses that were there before are not checked.
func checkAddresses(first string, list, before []string, at *field.Path) (errs field.ErrorList) {
	for i, ip := range list {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Index(i), ip, false, before)...)
	}
	if len(list) > 1 {
		if both, err := netutils.IsDualStackIPStrings(list); err != nil || !both || len(list) > 2 {
			errs = append(errs, field.Invalid(at, list, "must have at most one address of each family"))
		}
	}
	if first != strings.Join(list[:min(len(list), 1)], "") {
		errs = append(errs, field.Invalid(at, list, "must begin with the single address, "+first))
	}
	return errs
}

// checkStatuses checks container statuses. A container that has ended and is not restarted must
// remain terminated.
func checkStatuses(p *v1.Pod, l *statuses, at *field.Path) (errs field.ErrorList) {
	container := func(name string) *v1.Container {
		if i := slices.IndexFunc(l.of, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
			return &l.of[i]
		}
		return nil
	}
	for i := range l.was {
		ended := l.was[i].State.Terminated
		next := slices.IndexFunc(l.is, func(n v1.ContainerStatus) bool {
			return n.Name == l.was[i].Name && (!l.debug || n.State.Terminated == nil)
		})
		if ended == nil || next < 0 || l.is[next].State.Terminated != nil || !l.debug && podmeta.CanRestartAll(p) {
			continue
		}
		if c := container(l.was[i].Name); c == nil || !podmeta.RestartsAfter(p, c, ended.ExitCode) {
			errs = append(errs, field.Forbidden(at.Index(next).Child("state"), "the container has ended, and is not started again"))
		}
	}
	for i := range l.is {
		cp := at.Index(i)
		if u := l.is[i].User; u != nil && u.Linux != nil {
			up := cp.Child("user", "linux")
			if u.Linux.UID < 0 || u.Linux.UID > math.MaxUint32 {
				errs = append(errs, field.Invalid(up.Child("uid"), u.Linux.UID, validation.InclusiveRangeError(0, math.MaxUint32)))
			}
			for _, gid := range append([]int64{u.Linux.GID}, u.Linux.SupplementalGroups...) {
				for _, m := range validation.IsValidGroupID(gid) {
					errs = append(errs, field.Invalid(up, gid, m))
				}
			}
		}
		ap := cp.Child("allocatedResourcesStatus")
		if l.debug && len(l.is[i].AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(ap, "ephemeral containers have no resources"))
			continue
		}
		for j := range l.is[i].AllocatedResourcesStatus {
			r, rp := &l.is[i].AllocatedResourcesStatus[j], ap.Index(j)
			if c := container(l.is[i].Name); c != nil && !allocatedTo(c, r.Name, p.Status.ExtendedResourceClaimStatus) {
				errs = append(errs, field.Invalid(rp.Child("name"), r.Name, "must be a resource that the container requests, or claim:CLAIM or claim:CLAIM/REQUEST for one of its claims"))
			}
			errs = append(errs, checkHealth(r.Resources, rp.Child("resources"))...)
		}
	}
	return errs
}

// allocatedTo reports whether a container has the resource that a status names.
func allocatedTo(c *v1.Container, name v1.ResourceName, extended *v1.PodExtendedResourceClaimStatus) bool {
	claim, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		_, ok = c.Resources.Requests[name]
		return ok
	}
	for _, r := range c.Resources.Claims {
		if claim == r.Name && r.Request == "" || claim == r.Name+"/"+r.Request && r.Request != "" {
			return true
		}
	}
	claim, request, _ := strings.Cut(claim, "/")
	if extended == nil || request == "" || claim != extended.ResourceClaimName {
		return false
	}
	return slices.ContainsFunc(extended.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		q := c.Resources.Requests[v1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && !q.IsZero()
	})
}

func checkHealth(list []v1.ResourceHealth, at *field.Path) (errs field.ErrorList) {
	words := []v1.ResourceHealthStatus{v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusUnhealthy, v1.ResourceHealthStatusUnknown}
	seen := map[v1.ResourceID]bool{}
	for i, r := range list {
		if !slices.Contains(words, r.Health) {
			errs = append(errs, field.NotSupported(at.Index(i).Child("health"), r.Health, words))
		}
		if r.Message != nil && *r.Message == "" {
			errs = append(errs, field.Required(at.Index(i).Child("message"), "must not be empty"))
		}
		if len(deref(r.Message)) > v1.ResourceHealthMessageMaxLength {
			errs = append(errs, field.TooLong(at.Index(i).Child("message"), "", v1.ResourceHealthMessageMaxLength))
		}
		if seen[r.ResourceID] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("resourceID"), r.ResourceID))
		}
		seen[r.ResourceID] = true
	}
	return errs
}

// checkClaimsOfPod checks what a pod's status says about its ResourceClaims.
func checkClaimsOfPod(p *v1.Pod, at *field.Path) (errs field.ErrorList) {
	claimName := func(name string, p *field.Path) {
		for _, m := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(p, name, m))
		}
	}
	seen := map[string]bool{}
	for i, s := range p.Status.ResourceClaimStatuses {
		sp := at.Child("resourceClaimStatuses").Index(i)
		if !slices.ContainsFunc(p.Spec.ResourceClaims, func(c v1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.NotFound(sp.Child("name"), s.Name))
		}
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(sp.Child("name"), s.Name))
		}
		seen[s.Name] = true
		if s.ResourceClaimName != nil {
			claimName(*s.ResourceClaimName, sp.Child("resourceClaimName"))
		}
	}
	extended := p.Status.ExtendedResourceClaimStatus
	if extended == nil {
		return errs
	}
	ep := at.Child("extendedResourceClaimStatus")
	claimName(extended.ResourceClaimName, ep.Child("resourceClaimName"))
	if len(extended.RequestMappings) == 0 {
		errs = append(errs, field.Required(ep.Child("requestMappings"), ""))
	}
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	for i, m := range extended.RequestMappings {
		mp := ep.Child("requestMappings").Index(i)
		if !slices.ContainsFunc(all, func(c v1.Container) bool {
			_, ok := c.Resources.Requests[v1.ResourceName(m.ResourceName)]
			return c.Name == m.ContainerName && ok
		}) {
			errs = append(errs, field.Invalid(mp, m.ContainerName+" "+m.ResourceName, "must be a container, and a resource that it requests"))
		}
		for _, msg := range validation.IsDNS1123Label(m.RequestName) {
			errs = append(errs, field.Invalid(mp.Child("requestName"), m.RequestName, msg))
		}
		if slices.Contains(extended.RequestMappings[:i], m) {
			errs = append(errs, field.Duplicate(mp, m.RequestName))
		}
	}
	return errs
}

// resizeSteps are the allowed values for the state of a claim's resize.
var resizeSteps = []v1.ClaimResourceStatus{
	v1.PersistentVolumeClaimControllerResizeInProgress, v1.PersistentVolumeClaimControllerResizeInfeasible,
	v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress, v1.PersistentVolumeClaimNodeResizeInfeasible,
}

func checkClaimStatus(s *v1.PersistentVolumeClaimStatus, at *field.Path) (errs field.ErrorList) {
	named := func(name v1.ResourceName, p *field.Path) {
		for _, m := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(p, name, m))
		}
		own := !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
		if own && name != v1.ResourceStorage {
			errs = append(errs, field.NotSupported(p, name, []v1.ResourceName{v1.ResourceStorage}))
		}
	}
	amount := func(q resource.Quantity, p *field.Path) {
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(p, q.String(), "must be 0 or more"))
		}
	}
	for name, q := range s.Capacity {
		amount(q, at.Child("capacity").Key(string(name)))
	}
	for name, q := range s.AllocatedResources {
		p := at.Child("allocatedResources").Key(string(name))
		named(name, p)
		amount(q, p)
	}
	for name, step := range s.AllocatedResourceStatuses {
		p := at.Child("allocatedResourceStatuses").Key(string(name))
		named(name, p)
		if !slices.Contains(resizeSteps, step) {
			errs = append(errs, field.NotSupported(p, step, resizeSteps))
		}
	}
	return errs
}
