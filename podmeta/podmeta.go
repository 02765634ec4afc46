// Package podmeta answers questions about a pod that its own fields decide:
// where it comes from, its quality of service, which of its containers are
// started again. Every room that has pods asks them, so they live below all.
//
// All functions are pure. Nothing handed in is changed.
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

// The annotations by which the kubelet marks pods that did not come from the
// API server.
const (
	AnnotationSource = "kubernetes.io/config.source"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationMirror = "kubernetes.io/config.mirror"
	AnnotationSeen   = "kubernetes.io/config.seen"

	// AnnotationManaged marks pods, "true", that somebody outside of the node
	// follows: an API server, or a control plane of one's own.
	AnnotationManaged = "io.nodewright.config.managed"

	// AnnotationLife has, on the mirror of a static pod, the number of the life that it
	// shows; see podlife.Life. A sandbox has it under cri.AnnotationLife.
	AnnotationLife = "io.nodewright.life"

	// SourceAPI is the source of pods that did come from there.
	SourceAPI = "api"
)

// IsStatic reports whether a pod is this node's alone: it comes from a source that
// is neither the API server nor says that somebody follows its pods.
func IsStatic(pod *v1.Pod) bool {
	s, ok := pod.Annotations[AnnotationSource]
	return ok && s != SourceAPI && pod.Annotations[AnnotationManaged] == ""
}

// IsMirror reports whether a pod only stands in the API for a static one.
func IsMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}

// FullName is <name>_<namespace>, by which pods of different UIDs are the same
// to a person.
func FullName(namespace, name string) string { return name + "_" + namespace }

// Newer reports whether a is the pod that their name means, of two pods with one
// namespace and name: a pod that is not being deleted before one that is, then the one
// that was created later. Of two that are equal in both neither is newer.
func Newer(a, b *v1.Pod) bool {
	if x, y := a.DeletionTimestamp != nil, b.DeletionTimestamp != nil; x != y {
		return y
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// IsTerminal reports whether a pod in that phase has come to its end.
func IsTerminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// IsSidecar reports whether an init container keeps running beside the regular
// ones: its restartPolicy is Always (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// RestartsAfter reports whether a container is started again after it ended
// with that exit code: by the first of its rules that matches, else by its own
// policy, else by the pod's (KEP-5307).
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

// RestartsAllAfter reports whether a container that ended with that exit code has
// all containers of its pod start over (KEP-5532).
func RestartsAllAfter(c *v1.Container, exitCode int32) bool {
	r := ruleFor(c, exitCode)
	return r != nil && r.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// ruleFor is the first of a container's rules for that exit code, or nil. Rules
// count only beside a policy of the container's own.
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

// CanRestartAll reports whether any container of the pod has a rule by which
// the end of one starts all of them again.
func CanRestartAll(pod *v1.Pod) bool {
	all := func(r v1.ContainerRestartRule) bool {
		return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
	}
	has := func(c v1.Container) bool { return slices.ContainsFunc(c.RestartPolicyRules, all) }
	return slices.ContainsFunc(pod.Spec.InitContainers, has) || slices.ContainsFunc(pod.Spec.Containers, has)
}

// RestartPolicy is a container's own restart policy, or else the pod's.
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
// system-cluster-critical and system-node-critical; false for any other class.
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

// IsCritical reports whether the node should do without others before it does
// without the pod: it is static, stands for a static one, or has the priority
// of system pods.
func IsCritical(pod *v1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// QOS is a pod's quality of service class. One that its status has already
// stays: it cannot change.
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

// Requests is what a pod takes of a node: the sum of its containers and
// sidecars, or what its neediest init container needs together with the
// sidecars that run beside it, whichever is more, and the overhead (KEP-753).
// What the pod itself requests replaces that sum (KEP-2837). The result is the
// caller's.
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

// HashUID returns a UID for a pod of a source of one's own: the same for the same namespace, name
// and spec, also after a restart, and another one for a spec that differs. A pod keeps its
// identity with its UID: a changed spec needs another UID to take effect, and the old pod then ends
// first. Labels and annotations do not count. [IsHashUID] holds for the result.
func HashUID(pod *v1.Pod) types.UID {
	b, err := json.Marshal([]any{pod.Namespace, pod.Name, pod.Spec})
	if err != nil {
		panic(err) // a decoded pod always marshals
	}
	sum := sha256.Sum256(b)
	return types.UID(hex.EncodeToString(sum[:16]))
}

// IsHashUID reports whether a UID is of the form that kubelets compute for the pods
// of manifests, the 32 hexadecimal digits of an MD5 sum. It then is safe as the name
// of a directory.
func IsHashUID(uid types.UID) bool {
	return len(uid) == 32 && strings.Trim(string(uid), "0123456789abcdef") == ""
}
