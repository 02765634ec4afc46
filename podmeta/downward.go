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

// Field is a field of a pod's metadata as the downward API shows it, and whether
// path names one: metadata.name, .namespace, .uid, .labels and .annotations, and
// the last two with ['KEY']. A label or annotation that is not there is empty.
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

// subscript takes the key out of name['key'].
func subscript(path, name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, name+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// lines are key="value" for each key in order, the value as Go quotes it.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// Resource is a request or a limit of a container of the pod as the downward API
// shows it: in units of ref's divisor, rounded up. A limit that is not set is the
// pod's, else what the node has to give. ref's container name is not looked at.
func Resource(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	switch {
	case kind != "limits" && kind != "requests":
		return "", fmt.Errorf("%q: want limits.NAME or requests.NAME", ref.Resource)
	case res != v1.ResourceCPU && res != v1.ResourceMemory && res != v1.ResourceEphemeralStorage && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
		return "", fmt.Errorf("%q: want cpu, memory, ephemeral-storage or hugepages-SIZE", ref.Resource)
	case ref.Divisor.Sign() < 0:
		return "", fmt.Errorf("divisor %s of %q: want 0 or more", ref.Divisor.String(), ref.Resource)
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

// limit is what a container may use of a resource.
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

// milli is a quantity in thousandths, or the most that an int64 holds.
func milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}
