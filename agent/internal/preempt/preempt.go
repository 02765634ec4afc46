package preempt

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// Critical reports whether other pods may be terminated for a pod: it is static, the mirror of a
// static pod, or has the priority of system pods.
func Critical(pod *v1.Pod) bool { return podmeta.IsCritical(pod) }

// SystemPriority reports whether a pod has the priority of system pods. It replaces [Critical] on a
// node where all pods are static.
func SystemPriority(pod *v1.Pod) bool {
	return podmeta.IsCritical(&v1.Pod{Spec: v1.PodSpec{Priority: pod.Spec.Priority}})
}

// MayEnd reports whether victim may be terminated for pod, by the rules of the package
// documentation.
func MayEnd(victim, pod *v1.Pod, critical func(*v1.Pod) bool) bool {
	if critical(pod) && !critical(victim) {
		return true
	}
	return pod.Spec.Priority != nil && victim.Spec.Priority != nil && *victim.Spec.Priority < *pod.Spec.Priority
}

// NotEnoughError is the error of Choose if all possible victims together do not have the missing
// resources.
type NotEnoughError struct {
	Missing v1.ResourceList // missing after the end of all possible victims
}

func (e *NotEnoughError) Error() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(e.Missing)) {
		q := e.Missing[name]
		list = append(list, string(name)+" "+q.String())
	}
	return "no set of pods can be ended that would make room: still missing " + strings.Join(list, ", ")
}

// Choose returns the pods in the list others that have to be terminated so that pod gets the
// missing resources, in the order in which they were chosen. A pod counts as 1 of the resource
// "pods". If missing is empty it returns none. If all possible pods do not have enough, the error
// is a [*NotEnoughError]. Pods are not changed, and each victim counts with the requests of its
// spec.
func Choose(pod *v1.Pod, others []*v1.Pod, missing v1.ResourceList, critical func(*v1.Pod) bool) ([]*v1.Pod, error) {
	need := needOf(missing)
	if len(need) == 0 {
		return nil, nil
	}
	classes := map[v1.PodQOSClass][]*candidate{}
	var all []*candidate
	for _, o := range others {
		if o.UID != pod.UID && MayEnd(o, pod, critical) {
			c := newCandidate(o, need)
			all = append(all, c)
			class := podmeta.QOS(o)
			classes[class] = append(classes[class], c)
		}
	}
	if left := need.without(all); len(left) > 0 {
		return nil, &NotEnoughError{Missing: left.list(missing)}
	}
	guaranteed, burstable, bestEffort := classes[v1.PodQOSGuaranteed], classes[v1.PodQOSBurstable], classes[v1.PodQOSBestEffort]
	var chosen []*candidate
	chosen = append(chosen, nearest(guaranteed, need.without(slices.Concat(bestEffort, burstable)))...)
	chosen = append(chosen, nearest(burstable, need.without(slices.Concat(bestEffort, chosen)))...)
	chosen = append(chosen, nearest(bestEffort, need.without(chosen))...)
	victims := make([]*v1.Pod, len(chosen))
	for i, c := range chosen {
		victims[i] = c.pod
	}
	return victims, nil
}

// amounts has an amount of each resource: thousandths of a CPU, and the unit of other resources.
type amounts map[v1.ResourceName]int64

func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name != v1.ResourceCPU {
		return q.Value()
	}
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

func needOf(missing v1.ResourceList) amounts {
	out := amounts{}
	for name, q := range missing {
		if n := amount(name, q); n > 0 {
			out[name] = n
		}
	}
	return out
}

// list returns the missing amounts as quantities. Each has the format of the quantity with this
// name in formats.
func (a amounts) list(formats v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name, n := range a {
		q := formats[name]
		if name == v1.ResourceCPU {
			out[name] = *resource.NewMilliQuantity(n, q.Format)
		} else {
			out[name] = *resource.NewQuantity(n, q.Format)
		}
	}
	return out
}

// without returns the amounts that are still missing after some pods have ended.
func (a amounts) without(gone []*candidate) amounts {
	out := maps.Clone(a)
	for name := range out {
		for _, c := range gone {
			out[name] -= min(c.has[name], out[name])
		}
		if out[name] == 0 {
			delete(out, name)
		}
	}
	return out
}

// candidate is a possible victim, with its amounts of the missing resources.
type candidate struct {
	pod         *v1.Pod
	has         amounts
	memory, cpu int64
}

func newCandidate(pod *v1.Pod, need amounts) *candidate {
	r := podmeta.Requests(pod)
	c := &candidate{pod: pod, has: amounts{}, memory: amount(v1.ResourceMemory, r[v1.ResourceMemory]), cpu: amount(v1.ResourceCPU, r[v1.ResourceCPU])}
	for name := range need {
		if name == v1.ResourcePods {
			c.has[name] = 1
		} else {
			c.has[name] = max(amount(name, r[name]), 0)
		}
	}
	return c
}

// distance returns how much of the missing resources would still be missing without the pod. It
// returns 0 if nothing would be missing. names gives the order of the summands, since sums of
// floats depend on the order.
func (c *candidate) distance(need amounts, names []v1.ResourceName) (d float64) {
	for _, name := range names {
		if left := need[name] - c.has[name]; left > 0 {
			part := float64(left) / float64(need[name])
			d += part * part
		}
	}
	return d
}

// before reports whether c is chosen before o, if both have the same distance.
func (c *candidate) before(o *candidate) bool {
	return cmp.Or(cmp.Compare(c.memory, o.memory), cmp.Compare(c.cpu, o.cpu),
		cmp.Compare(c.pod.Namespace, o.pod.Namespace), cmp.Compare(c.pod.Name, o.pod.Name), cmp.Compare(c.pod.UID, o.pod.UID)) < 0
}

// nearest chooses pods of a class until nothing of need is missing, each time the pod
// with the smallest distance. All pods of the class together must have enough.
func nearest(class []*candidate, need amounts) (chosen []*candidate) {
	left := slices.Clone(class)
	for len(need) > 0 {
		best, at, names := -1, 0.0, slices.Sorted(maps.Keys(need))
		for i, c := range left {
			if d := c.distance(need, names); best < 0 || d < at || d == at && c.before(left[best]) {
				best, at = i, d
			}
		}
		if best < 0 {
			break // cannot happen: Choose has checked that there is enough
		}
		chosen = append(chosen, left[best])
		need = need.without(left[best : best+1])
		left = slices.Delete(left, best, best+1)
	}
	return chosen
}
