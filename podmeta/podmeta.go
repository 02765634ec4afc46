// Package podmeta derives facts about a pod from its own fields: its source, its
// quality of service, its requests, which of its containers are started again. It is
// below all packages that use pods.
//
// All functions are pure. Arguments are not changed, unless a function says so.
//
// Tier: stable.
package podmeta

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations with which the kubelet marks pods that are not from the API
// server.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationMirror = "kubernetes.io/config.mirror"
	AnnotationSeen   = "kubernetes.io/config.seen"

	// AnnotationManaged is "true" for pods that are owned by an API server or by
	// another program outside of the node; see podmgr.Kind.
	AnnotationManaged = "io.nodewright.config.managed"

	// AnnotationLife has, on the mirror pod of a static pod, the number of the pod's life that the
	// mirror shows; see podlife.Life. A sandbox has the number under cri.AnnotationLife.
	AnnotationLife = "io.nodewright.life"

	// SourceAPI is the source of pods from the API server.
	SourceAPI = "api"
)

// IsStatic reports whether a pod is static: owned by this node. Its source is not the
// API server, and it has no AnnotationManaged.
func IsStatic(pod *v1.Pod) bool {
	s, ok := pod.Annotations[AnnotationSource]
	return ok && s != SourceAPI && pod.Annotations[AnnotationManaged] == ""
}

// IsScheduled reports whether a scheduler has bound the pod to the node: its source is the API
// server.
func IsScheduled(pod *v1.Pod) bool { return pod.Annotations[AnnotationSource] == SourceAPI }

// IsMirror reports whether a pod is a mirror pod: the object in the API for a static
// pod.
func IsMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}

// FullName returns <name>_<namespace>, which pods with different UIDs may share.
func FullName(namespace, name string) string { return name + "_" + namespace }

// Newer reports whether a is newer than b, another pod of the same name. A pod that is not being
// deleted is newer than a pod that is. Otherwise the pod that was created later is newer. If both
// were created at the same time, neither is newer.
func Newer(a, b *v1.Pod) bool {
	if x, y := a.DeletionTimestamp != nil, b.DeletionTimestamp != nil; x != y {
		return y
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// IsTerminal reports whether a phase is final: Succeeded or Failed.
func IsTerminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// IsSidecar reports whether an init container keeps running beside the regular
// ones: its restartPolicy is Always (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// RestartsAfter reports whether a container is started again after it ended with that exit code
// (KEP-5307). The first of its restart rules that matches decides. Without one, its own restart
// policy decides, or else the pod's.
func RestartsAfter(pod *v1.Pod, c *v1.Container, exitCode int32) bool {
	if ruleFor(c, exitCode) != nil {
		return true // Restart and RestartAllContainers both do
	}
	switch RestartPolicy(pod, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// RestartsAllAfter reports whether all containers of the pod are restarted after the
// container has ended with that exit code (KEP-5532).
func RestartsAllAfter(c *v1.Container, exitCode int32) bool {
	r := ruleFor(c, exitCode)
	return r != nil && r.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// ruleFor returns the first of a container's rules for that exit code, or nil. Rules
// have no effect without a restart policy of the container.
func ruleFor(c *v1.Container, exitCode int32) *v1.ContainerRestartRule {
	if c.RestartPolicy == nil {
		return nil
	}
	for i := range c.RestartPolicyRules {
		if r := &c.RestartPolicyRules[i]; ruleMatches(r, exitCode) {
			return r
		}
	}
	return nil
}

// CanRestartAll reports whether a container of the pod has a rule that restarts all
// containers.
func CanRestartAll(pod *v1.Pod) bool {
	all := func(r v1.ContainerRestartRule) bool {
		return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
	}
	has := func(c v1.Container) bool { return slices.ContainsFunc(c.RestartPolicyRules, all) }
	return slices.ContainsFunc(pod.Spec.InitContainers, has) || slices.ContainsFunc(pod.Spec.Containers, has)
}

// RestartPolicy returns a container's own restart policy, or else the pod's.
func RestartPolicy(pod *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

func ruleMatches(r *v1.ContainerRestartRule, code int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	in := slices.Contains(r.ExitCodes.Values, code)
	switch r.ExitCodes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return in
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !in
	default:
		return false
	}
}

// systemCritical is the least priority of the class system-cluster-critical.
const systemCritical = 2000000000

// PriorityOf returns the priority of one of the two classes that every cluster has,
// system-cluster-critical and system-node-critical. ok is false for any other class.
func PriorityOf(class string) (priority int32, ok bool) {
	switch class {
	case "system-cluster-critical":
		return systemCritical, true
	case "system-node-critical":
		return systemCritical + 1000, true
	default:
		return 0, false
	}
}

// IsCritical reports whether a pod is critical: static, a mirror pod, or with at least
// the priority of system-cluster-critical. Other pods are preempted and evicted first.
func IsCritical(pod *v1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// QOS returns a pod's quality of service class from its status, since the class cannot change. If
// the status has none, QOS computes it from the spec.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	asks, guaranteed := false, true
	look := func(r v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			req, hasReq := r.Requests[name]
			lim, hasLim := r.Limits[name]
			if (hasReq && !req.IsZero()) || (hasLim && !lim.IsZero()) {
				asks = true
			}
			// A request that is left out equals the limit.
			if !hasLim || lim.IsZero() || (hasReq && req.Cmp(lim) != 0) {
				guaranteed = false
			}
		}
	}
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		look(*r)
	} else {
		for i := range pod.Spec.InitContainers {
			look(pod.Spec.InitContainers[i].Resources)
		}
		for i := range pod.Spec.Containers {
			look(pod.Spec.Containers[i].Resources)
		}
	}
	switch {
	case !asks:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}

// Requests returns the resources that a pod takes from a node: the sum of its
// containers and sidecars or, if it is larger, the requests of an init container with
// the sidecars that run beside it, plus the overhead (KEP-753). Requests of the pod
// itself replace the sum (KEP-2837). The caller owns the result.
func Requests(pod *v1.Pod) v1.ResourceList {
	total := Sum(pod, RequestsOf)
	if r := pod.Spec.Resources; r != nil {
		for name, q := range r.Requests {
			total[name] = q.DeepCopy()
		}
	}
	add(total, pod.Spec.Overhead)
	return total
}

// HashUID returns a UID for a pod of a custom source. The UID depends on namespace, name and spec,
// not on labels and annotations, and is the same after a restart. The UID is the identity of a pod:
// a changed spec takes effect under another UID, and the pod with the old UID ends first.
// [IsHashUID] is true for the result.
func HashUID(pod *v1.Pod) types.UID {
	b, err := json.Marshal([]any{pod.Namespace, pod.Name, pod.Spec})
	if err != nil {
		panic(err) // a decoded pod always marshals
	}
	sum := sha256.Sum256(b)
	return types.UID(hex.EncodeToString(sum[:16]))
}

// IsHashUID reports whether a UID has the form of those that kubelets compute for pods
// of manifests: 32 hexadecimal digits. Such a UID is safe as the name of a directory.
func IsHashUID(uid types.UID) bool {
	return len(uid) == 32 && strings.Trim(string(uid), "0123456789abcdef") == ""
}
