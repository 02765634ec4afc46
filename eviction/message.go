package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/eviction/rank"
)

// The annotations of eviction events (the kubelet's).
const (
	annotationContainers = "offending_containers"
	annotationUsage      = "offending_containers_usage"
	annotationPod        = "offending_pod"
	annotationPodUsage   = "offending_pod_usage"
	annotationResource   = "starved_resource"
)

// bytes formats an amount like the kubelet: 100Mi.
func bytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// resourceOf returns the resource of a signal, for messages. A custom signal is its own name.
func resourceOf(s rank.Signal) v1.ResourceName {
	if !s.Known() {
		return v1.ResourceName(s)
	}
	return s.Resource()
}

// lowMessage returns the kubelet's message for an evicted pod: users and tools search for it.
func lowMessage(t rank.Threshold, o rank.Observation, c rank.Candidate) string {
	var b strings.Builder
	res := resourceOf(t.Signal)
	// The kubelet formats counts in decimal units and bytes in binary ones.
	if (res == rank.ResourceInodes || res == rank.ResourcePIDs || !t.Signal.Known()) && t.Value.Format == "" {
		t.Value.Format = resource.DecimalSI
	}
	limit := t.Value.Quantity(o.Capacity)
	available := resource.NewQuantity(o.Available, limit.Format)
	fmt.Fprintf(&b, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", res, limit.String(), available)
	if over, used, request := podOver(res, c); over {
		fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %s. ", c.Pod.Name, bytes(used), bytes(request), res)
	}
	for _, o := range offenders(res, c) {
		fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", o.name, bytes(o.used), bytes(o.request), res)
	}
	return b.String()
}

// podOver reports whether the pod has a pod-level memory request and exceeds it.
func podOver(res v1.ResourceName, c rank.Candidate) (over bool, used, request int64) {
	if res != v1.ResourceMemory || c.Usage == nil || c.Pod.Spec.Resources == nil {
		return false, 0, 0
	}
	q, ok := c.Pod.Spec.Resources.Requests[res]
	return ok && c.Usage.Memory > q.Value(), c.Usage.Memory, q.Value()
}

// offender is a container that exceeds its request; figures in bytes.
type offender struct {
	name          string
	used, request int64
}

// offenders returns the containers that exceed their requests.
func offenders(res v1.ResourceName, c rank.Candidate) []offender {
	if c.Usage == nil {
		return nil
	}
	requests := map[string]int64{}
	for _, list := range [][]v1.Container{c.Pod.Spec.InitContainers, c.Pod.Spec.Containers} {
		for i := range list {
			q := list[i].Resources.Requests[res]
			requests[list[i].Name] = q.Value()
		}
	}
	var out []offender
	for _, u := range c.Usage.Containers {
		request, ok := requests[u.Name]
		var used int64
		switch {
		case !ok:
			continue
		case res == v1.ResourceMemory:
			used = u.Memory
		case res == v1.ResourceEphemeralStorage && u.Rootfs != nil && u.Logs != nil:
			used = u.Rootfs.Bytes + u.Logs.Bytes
		}
		if used > request {
			out = append(out, offender{u.Name, used, request})
		}
	}
	return out
}

// annotations returns the annotations of an eviction event: lists joined by commas, in the order
// of the containers.
func annotations(res v1.ResourceName, c rank.Candidate) map[string]string {
	out := map[string]string{annotationResource: string(res)}
	var names, usage []string
	for _, o := range offenders(res, c) {
		names, usage = append(names, o.name), append(usage, bytes(o.used))
	}
	if len(names) > 0 {
		out[annotationContainers], out[annotationUsage] = strings.Join(names, ","), strings.Join(usage, ",")
	}
	if over, used, _ := podOver(res, c); over {
		out[annotationPod], out[annotationPodUsage] = c.Pod.Name, bytes(used)
	}
	return out
}

// limitMessage returns the kubelet's message for an exceeded limit.
func limitMessage(v rank.Violation) string {
	switch v.Limit {
	case rank.EmptyDirLimit:
		return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.Quantity())
	case rank.PodLimit:
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", v.Quantity())
	default:
		return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", v.Name, v.Quantity())
	}
}
