package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// fieldValue is the value of a field of the pod (the downward API).
func fieldValue(in Input, path string) (string, error) {
	pod := in.Pod
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	first := func(ips []string) string {
		if len(ips) == 0 {
			return ""
		}
		return ips[0]
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return in.Node.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(in.Node.IPs), nil
	case "status.hostIPs":
		return strings.Join(in.Node.IPs, ","), nil
	case "status.podIP":
		return first(podIPs(in)), nil
	case "status.podIPs":
		return strings.Join(podIPs(in), ","), nil
	}
	return "", fmt.Errorf("%q is not supported; want metadata.name, .namespace, .uid, .labels, .annotations, spec.nodeName, spec.serviceAccountName, status.hostIP, .hostIPs, .podIP or .podIPs", path)
}

// podIPs are the pod's addresses: the node's own in its network.
func podIPs(in Input) []string {
	if in.Pod.Spec.HostNetwork {
		return in.Node.IPs
	}
	return in.PodIPs
}

// subscript takes the key out of name['key'].
func subscript(path, name string) (string, bool) {
	rest, ok := strings.CutPrefix(path, name+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// formatMap writes a map as the downward API does: key="value" in lines.
func formatMap(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q\n", k, m[k])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// resourceValue is a container's request or limit, in units of the divisor,
// rounded up. A limit that is not set is what the node has to give.
func resourceValue(in Input, c *v1.Container, ref *v1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		other, _, _, err := Find(in.Pod, ref.ContainerName)
		if err != nil {
			return "", err
		}
		c = other
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	var list v1.ResourceList
	switch {
	case ok && kind == "limits":
		list = c.Resources.Limits
	case ok && kind == "requests":
		list = c.Resources.Requests
	default:
		return "", fmt.Errorf("%q: want limits.NAME or requests.NAME", ref.Resource)
	}
	hugepages := strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if res != v1.ResourceCPU && res != v1.ResourceMemory && res != v1.ResourceEphemeralStorage && !hugepages {
		return "", fmt.Errorf("%q: want cpu, memory, ephemeral-storage or hugepages-SIZE", ref.Resource)
	}
	q, set := list[res]
	if !set && kind == "limits" {
		if p := in.Pod.Spec.Resources; p != nil {
			q, set = p.Limits[res]
		}
		if !set {
			q = in.Node.Allocatable[res]
		}
	}
	div := ref.Divisor
	if div.IsZero() {
		div = resource.MustParse("1")
	}
	if res == v1.ResourceCPU {
		return strconv.FormatInt(ceilDiv(milli(q), milli(div)), 10), nil
	}
	return strconv.FormatInt(ceilDiv(q.Value(), div.Value()), 10), nil
}

// ceilDiv divides rounding up; a divisor that is none counts as 1.
func ceilDiv(a, b int64) int64 {
	if b <= 0 {
		b = 1
	}
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
