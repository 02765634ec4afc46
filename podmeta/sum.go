package podmeta

import (
	v1 "k8s.io/api/core/v1"
)

// The rule for pods with init containers and sidecars (KEP-753): an init container runs
// beside the sidecars before it; later, all sidecars and containers run together. The pod
// needs the largest of these sums.

// Sum returns the sum of one list of a pod's containers, such as their limits, by the
// rule for requests: the sum of containers and sidecars or, if it is larger, the values
// of an init container with the sidecars before it. A container without a value adds
// nothing. The pod's own resources and its overhead are not included. The caller owns the
// result.
func Sum(pod *v1.Pod, list func(*v1.ResourceRequirements) v1.ResourceList) v1.ResourceList {
	total, sidecars, peak := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if IsSidecar(c) {
			add(sidecars, list(&c.Resources))
			atLeast(peak, sidecars)
			continue
		}
		alone := v1.ResourceList{}
		add(alone, sidecars)
		add(alone, list(&c.Resources))
		atLeast(peak, alone)
	}
	for i := range pod.Spec.Containers {
		add(total, list(&pod.Spec.Containers[i].Resources))
	}
	add(total, sidecars)
	atLeast(total, peak)
	return total
}

// SumOf returns the value of one resource in [Sum], rounded up to whole units for
// each container. It does not allocate.
func SumOf(pod *v1.Pod, name v1.ResourceName, list func(*v1.ResourceRequirements) v1.ResourceList) int64 {
	value := func(c *v1.Container) int64 {
		q := list(&c.Resources)[name]
		return q.Value()
	}
	var total, sidecars, peak int64
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		v := value(c)
		peak = max(peak, sidecars+v)
		if IsSidecar(c) {
			sidecars += v
		}
	}
	for i := range pod.Spec.Containers {
		total += value(&pod.Spec.Containers[i])
	}
	return max(total+sidecars, peak)
}

// RequestsOf returns the requests of r, for [Sum] and [SumOf].
func RequestsOf(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests }

// LimitsOf returns the limits of r, for [Sum] and [SumOf].
func LimitsOf(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits }

func add(to, more v1.ResourceList) {
	for name, q := range more {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

func atLeast(to, other v1.ResourceList) {
	for name, q := range other {
		if have, ok := to[name]; !ok || q.Cmp(have) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}
