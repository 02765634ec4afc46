package podmeta

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field returns a field of a pod's metadata as the downward API shows it. The paths are
// metadata.name, .namespace, .uid, .labels, .annotations, .labels['KEY'] and .annotations['KEY'].
// A missing label or annotation is "". ok is false for any other path.
func Field(pod *v1.Pod, path string) (value string, ok bool) {
	switch path {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "metadata.labels":
		return lines(pod.Labels), true
	case "metadata.annotations":
		return lines(pod.Annotations), true
	}
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], true
	}
	key, ok := subscript(path, "metadata.annotations")
	return pod.Annotations[key], ok
}

// subscript returns the key in name['key']. ok is false for a path of another form.
func subscript(path, name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, name+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// lines returns a line key="value" for each key, sorted by key, with the value quoted as
// in Go.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// Resource returns a request or limit of c as the downward API shows it: in units of ref's
// divisor, rounded up. If c has no such limit, the result is the pod's limit. If the pod has none
// either, it is the node's allocatable amount. ref.ContainerName is ignored.
func Resource(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	switch {
	case kind != "limits" && kind != "requests":
		return "", fmt.Errorf("resource %q: want limits.NAME or requests.NAME", ref.Resource)
	case res != v1.ResourceCPU && res != v1.ResourceMemory && res != v1.ResourceEphemeralStorage && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
		return "", fmt.Errorf("resource %q: want cpu, memory, ephemeral-storage or hugepages-SIZE after the dot", ref.Resource)
	case ref.Divisor.Sign() < 0:
		return "", fmt.Errorf("divisor %s of resource %q: want 0 or more", ref.Divisor.String(), ref.Resource)
	}
	q := c.Resources.Requests[res]
	if kind == "limits" {
		q = limit(pod, c, res, allocatable)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	a, b := q.Value(), divisor.Value()
	if res == v1.ResourceCPU {
		a, b = milli(q), milli(divisor)
	}
	return strconv.FormatInt(ceilDiv(a, max(b, 1)), 10), nil
}

// limit returns a container's limit of a resource: its own, the pod's, or the node's
// allocatable amount.
func limit(pod *v1.Pod, c *v1.Container, res v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if q, ok := c.Resources.Limits[res]; ok {
		return q
	}
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[res]; ok {
			return q
		}
	}
	return allocatable[res]
}

// ceilDiv divides rounding up.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// milli returns a quantity in thousandths, at most the largest int64.
func milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}
