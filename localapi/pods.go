package localapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// newPod initializes a new pod, which is not on the node yet.
func newPod(p *v1.Pod) {
	p.Generation = 1
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	defaultPod(p)
	p.Status.QOSClass = podmeta.QOS(p)
}

// place assigns a pod to the node, or records why the pod waits: the node is cordoned, the pod
// has a scheduling gate, or it uses a claim that is being deleted, whose deletion would then
// have to wait for the pod. The field nodeName has no owner in managedFields, so that applying
// the pod without it does not remove it.
func (s *Server) place(p *v1.Pod) {
	reason, message := "", ""
	claim := s.endingClaim(p)
	switch {
	case len(p.Spec.SchedulingGates) > 0:
		reason, message = v1.PodReasonSchedulingGated, "waiting for scheduling gates to be removed"
	case s.cordoned():
		reason, message = v1.PodReasonUnschedulable, "the node is cordoned: kubectl uncordon "+s.cfg.Node
	case claim != nil:
		reason, message = v1.PodReasonUnschedulable, fmt.Sprintf("%s %q is being deleted", strings.ToLower(claim.GetObjectKind().GroupVersionKind().Kind), claim.GetName())
	default:
		p.Spec.NodeName = s.cfg.Node
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, scheduled)
		return
	}
	i := slices.IndexFunc(p.Status.Conditions, scheduled)
	if i < 0 {
		i = len(p.Status.Conditions)
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled})
	}
	c := &p.Status.Conditions[i]
	if c.Status != v1.ConditionFalse {
		c.Status, c.LastTransitionTime = v1.ConditionFalse, metav1.NewTime(time.Now().Truncate(time.Second))
	}
	c.Reason, c.Message = reason, message
}

// Unplaced returns copies of the pods that wait for a place on the node; their status has the
// reason. The [Server.Source] does not deliver them.
func (s *Server) Unplaced() (pods []*v1.Pod) {
	for _, it := range s.set.List(s.pods, "") {
		if p := it.Object.(*v1.Pod); it.Origin == objects.Owned && p.Spec.NodeName == "" {
			pods = append(pods, p.DeepCopy())
		}
	}
	return pods
}

func scheduled(c v1.PodCondition) bool { return c.Type == v1.PodScheduled }

func (s *Server) cordoned() bool {
	it, ok := s.item(s.nodes, key{Name: s.cfg.Node})
	return ok && it.Object.(*v1.Node).Spec.Unschedulable
}

// bind assigns the waiting pods to the node.
func (t *turn) bind() {
	s := t.s
	if s.cordoned() {
		return
	}
	waiting := slices.DeleteFunc(s.set.List(s.pods, ""), func(it item) bool {
		p := it.Object.(*v1.Pod)
		return p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || it.Origin != objects.Owned || p.DeletionTimestamp != nil
	})
	slices.SortFunc(waiting, func(a, b item) int { return keyOf(a.Object).Compare(keyOf(b.Object)) })
	for _, it := range waiting {
		p := it.Object.(*v1.Pod).DeepCopy()
		s.place(p)
		if _, err := t.apply(change{Kind: s.pods, Key: keyOf(p), Actor: objects.Clock, Verb: objects.Update, Object: p, By: itself}); err != nil {
			s.cfg.Log.Warn("failed to assign pod to the node", podField(p), errField(err))
		}
	}
}

// defaultPod sets the API's defaults.
func defaultPod(p *v1.Pod) {
	podmgr.Default(p)
	if p.Spec.ServiceAccountName == "" {
		p.Spec.ServiceAccountName = p.Spec.DeprecatedServiceAccount
	}
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
}

// checkPod returns the mistakes in a pod that is new or replaces old.
func (s *Server) checkPod(p, old *v1.Pod) field.ErrorList {
	plain := p.DeepCopy()
	// A node has one service account, which has no tokens.
	for _, name := range []*string{&plain.Spec.ServiceAccountName, &plain.Spec.DeprecatedServiceAccount} {
		if *name == "default" {
			*name = ""
		}
	}
	errs := podmgr.Validate(plain)
	for i, e := range errs {
		errs[i].Detail = strings.ReplaceAll(e.Detail, "static pods", "pods on a node alone")
	}
	spec := field.NewPath("spec")
	if n := p.Spec.NodeName; n != "" && n != s.cfg.Node {
		errs = append(errs, field.Invalid(spec.Child("nodeName"), n, "this is the API of node "+s.cfg.Node))
	}
	if old == nil && len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	return errs
}

// way says through which resource or by whom a pod is changed.
type way uint8

const (
	// byClient is a write of the pod itself. byResize and byDebug are writes of its
	// subresources resize and ephemeralcontainers.
	byClient way = iota
	byResize
	byDebug
	// byFile is an edit of the pod's file by a person. It allows all changes that a pod
	// supports.
	byFile
)

func wayOf(subresource string) way {
	switch subresource {
	case "resize":
		return byResize
	case "ephemeralcontainers":
		return byDebug
	default:
		return byClient
	}
}

// changeable returns the spec of p, in which the fields that may be changed this way have
// the values of old. If the result equals the spec of old, the change is allowed.
func changeable(p, old *v1.Pod, by way) *v1.PodSpec {
	s := p.Spec.DeepCopy()
	for _, list := range []struct{ to, from []v1.Container }{{s.Containers, old.Spec.Containers}, {s.InitContainers, old.Spec.InitContainers}} {
		for i := range min(len(list.to), len(list.from)) {
			if by == byClient || by == byFile {
				list.to[i].Image = list.from[i].Image
			}
			if by == byFile {
				list.to[i].Resources = list.from[i].Resources
			}
			if by == byResize {
				list.to[i].Resources = *resized(&list.to[i].Resources, &list.from[i].Resources)
			}
		}
	}
	if by == byResize && s.Resources != nil && len(s.Resources.Requests)+len(s.Resources.Limits) > 0 {
		s.Resources = resized(s.Resources, old.Spec.Resources)
	}
	if by == byDebug || by == byFile {
		s.EphemeralContainers = old.Spec.EphemeralContainers
	}
	if by == byResize || by == byDebug {
		return s
	}
	s.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	s.Tolerations = old.Spec.Tolerations
	s.SchedulingGates, s.NodeName = old.Spec.SchedulingGates, old.Spec.NodeName
	if g := s.TerminationGracePeriodSeconds; g != nil && *g == 1 && deref(old.Spec.TerminationGracePeriodSeconds) < 0 {
		s.TerminationGracePeriodSeconds = old.Spec.TerminationGracePeriodSeconds
	}
	return s
}

// resized returns a copy of r in which the CPU and memory, which a resize may change, have the
// values of old. It returns nil if old is nil and the copy is empty.
func resized(r, old *v1.ResourceRequirements) *v1.ResourceRequirements {
	from := deref(old)
	out := r.DeepCopy()
	for _, list := range []struct {
		to   *v1.ResourceList
		from v1.ResourceList
	}{{&out.Requests, from.Requests}, {&out.Limits, from.Limits}} {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			delete(*list.to, name)
			if q, ok := list.from[name]; ok {
				if *list.to == nil {
					*list.to = v1.ResourceList{}
				}
				(*list.to)[name] = q
			}
		}
	}
	if old == nil && len(out.Requests)+len(out.Limits)+len(out.Claims) == 0 {
		return nil
	}
	return out
}

// removed reports whether list lacks a resource that the list old has.
func removed(list, old v1.ResourceList) bool {
	for name := range old {
		if _, ok := list[name]; !ok {
			return true
		}
	}
	return false
}

// replaceable reports whether old may be changed to p this way. If not, p is another pod.
func replaceable(p, old *v1.Pod, by way) bool {
	return equality.Semantic.DeepEqual(changeable(p, old, by), &old.Spec)
}

// checkPodChange returns the forbidden changes of a pod; none for other kinds.
func checkPodChange(o, before object, by way) (errs field.ErrorList) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return nil
	}
	old, spec := before.(*v1.Pod), field.NewPath("spec")
	if !replaceable(p, old, by) {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "+
			"`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative); delete the pod and create it again"))
	}
	for i, t := range old.Spec.Tolerations {
		if !slices.ContainsFunc(p.Spec.Tolerations, func(n v1.Toleration) bool { n.TolerationSeconds, t.TolerationSeconds = nil, nil; return n == t }) {
			errs = append(errs, field.Forbidden(spec.Child("tolerations").Index(i), "existing toleration can not be modified except its tolerationSeconds"))
		}
	}
	if n, was := p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds; was != nil && (n == nil || *n > *was) {
		errs = append(errs, field.Invalid(spec.Child("activeDeadlineSeconds"), deref(n), fmt.Sprintf("must be less than or equal to the previous value, %d", *was)))
	}
	for i, g := range p.Spec.SchedulingGates {
		if !slices.Contains(old.Spec.SchedulingGates, g) {
			errs = append(errs, field.Forbidden(spec.Child("schedulingGates").Index(i), "only deletion is allowed"))
		}
	}
	return errs
}

// preparePodPart restores all fields of a sent pod that its subresource may not change.
func (s *Server) preparePodPart(k *kind, subresource string, p, old *v1.Pod) error {
	sent := p.DeepCopy()
	defaultPod(sent)
	overwrite(p, old)
	if subresource == "ephemeralcontainers" {
		p.Spec.EphemeralContainers = sent.Spec.EphemeralContainers
		at := field.NewPath("spec", "ephemeralContainers")
		for i, was := range old.Spec.EphemeralContainers {
			if !slices.ContainsFunc(p.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return equality.Semantic.DeepEqual(c, was) }) {
				return invalid(k, p.Name, field.ErrorList{field.Forbidden(at.Index(i), "existing ephemeral containers may not be changed or removed")})
			}
		}
		return nil
	}
	var errs field.ErrorList
	spec := field.NewPath("spec")
	kept := func(r, old v1.ResourceRequirements, p *field.Path) {
		if removed(r.Requests, old.Requests) || removed(r.Limits, old.Limits) {
			errs = append(errs, field.Forbidden(p, "a resize cannot remove requests or limits"))
		}
	}
	for _, list := range []struct {
		to, from []v1.Container
		at       *field.Path
	}{
		{p.Spec.Containers, sent.Spec.Containers, spec.Child("containers")}, {p.Spec.InitContainers, sent.Spec.InitContainers, spec.Child("initContainers")},
	} {
		if !slices.EqualFunc(list.to, list.from, func(a, b v1.Container) bool { return a.Name == b.Name }) {
			errs = append(errs, field.Forbidden(list.at, "a resize cannot add, remove, rename or reorder containers"))
			continue
		}
		for i := range list.to {
			kept(list.from[i].Resources, list.to[i].Resources, list.at.Index(i).Child("resources"))
			list.to[i].Resources, list.to[i].ResizePolicy = list.from[i].Resources, list.from[i].ResizePolicy
		}
	}
	if r := sent.Spec.Resources; r != nil { // older clients do not know the field
		kept(*r, deref(p.Spec.Resources), spec.Child("resources"))
		p.Spec.Resources = r
	}
	if len(errs) > 0 {
		return invalid(k, p.Name, errs)
	}
	// Compare the specs: the status has the QoS class from the creation of the pod.
	if podmeta.QOS(&v1.Pod{Spec: p.Spec}) != podmeta.QOS(&v1.Pod{Spec: old.Spec}) {
		return invalid(k, p.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), p.Name, "Pod QOS Class may not change as a result of resizing")})
	}
	return nil
}
