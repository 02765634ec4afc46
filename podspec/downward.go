package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// fieldValue returns the value of a field of the pod (downward API).
func fieldValue(in Input, path string) (string, error) {
	pod := in.Pod
	for of, m := range map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations} {
		// All labels or annotations together are one value. Its length is checked before the
		// value is built.
		size := 0
		for k, v := range m {
			size += len(k) + len(v)
		}
		if path == of && size > maxString {
			return "", fmt.Errorf("%q has more than the %d bytes that a variable may have", path, maxString)
		}
	}
	// Fields of the pod object are the same in volumes; the fields below depend on the node.
	if value, ok := podmeta.Field(pod, path); ok {
		return value, nil
	}
	first := func(ips []string) string {
		if len(ips) == 0 {
			return ""
		}
		return ips[0]
	}
	switch path {
	case "spec.nodeName":
		return in.Node.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	// The address comes from the node, since the status of a starting pod has none yet.
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

// podIPs returns the pod's addresses. For a pod in the host's network it returns the node's.
func podIPs(in Input) []string {
	if in.Pod.Spec.HostNetwork {
		return in.Node.IPs
	}
	return in.PodIPs
}

// resourceValue returns a container's request or limit in units of the divisor, rounded up. For
// an unset limit it returns the node's allocatable amount.
func resourceValue(in Input, c *v1.Container, ref *v1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		other, _, _, err := Find(in.Pod, ref.ContainerName)
		if err != nil {
			return "", err
		}
		c = other
	}
	return podmeta.Resource(in.Pod, c, ref, in.Node.Allocatable)
}
