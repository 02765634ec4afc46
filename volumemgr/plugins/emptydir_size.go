package plugins

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// memorySize returns the size limit of a volume in memory, in bytes: the smallest limit that is
// set, or 0 if none is.
func memorySize(allocatable int64, pod *v1.Pod, limit *resource.Quantity) int64 {
	size := allocatable
	least := func(n int64) {
		if n > 0 && (size <= 0 || n < size) {
			size = n
		}
	}
	least(memoryLimit(pod))
	if limit != nil {
		least(limit.Value())
	}
	return max(size, 0)
}

// memoryLimit returns the pod's memory limit in bytes, or 0 if there is none. The limit is the
// pod-level limit. If the pod has no pod-level limit, it is the larger of two values: the sum of
// the containers' limits, and the largest limit of an init container plus the sidecars before it.
// As in the kubelet, a container without a limit counts as 0.
func memoryLimit(pod *v1.Pod) int64 {
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[v1.ResourceMemory]; ok {
			return q.Value()
		}
	}
	of := func(c *v1.Container) int64 { return c.Resources.Limits.Memory().Value() }
	var sum, sidecars, most int64
	for i := range pod.Spec.Containers {
		sum += of(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		most = max(most, sidecars+of(c))
		if podmeta.IsSidecar(c) {
			sidecars += of(c)
		}
	}
	return max(sum+sidecars, most)
}

// pageSize returns the size of a medium's huge pages. The pod must request pages of that size.
func pageSize(medium v1.StorageMedium, pod *v1.Pod) (resource.Quantity, error) {
	sizes, err := requested(pod)
	if err != nil {
		return resource.Quantity{}, err
	}
	if medium == v1.StorageMediumHugePages {
		if len(sizes) != 1 {
			return resource.Quantity{}, fmt.Errorf("emptyDir.medium HugePages: the pod requests %d sizes of huge pages, want one: %s", len(sizes), names(sizes))
		}
		for _, q := range sizes {
			return q, nil
		}
	}
	text := strings.TrimPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	size, err := quantity.Parse(text)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("emptyDir.medium %q: size %q: %w", medium, text, err)
	}
	if _, ok := sizes[size.Value()]; !ok {
		return resource.Quantity{}, fmt.Errorf("emptyDir.medium %q: the pod requests no huge pages of this size, only: %s", medium, names(sizes))
	}
	return size, nil
}

// requested returns the huge page sizes that the pod or its containers request, by size in
// bytes.
func requested(pod *v1.Pod) (map[int64]resource.Quantity, error) {
	out := map[int64]resource.Quantity{}
	var lists []v1.ResourceList
	if r := pod.Spec.Resources; r != nil {
		lists = append(lists, r.Requests, r.Limits)
	}
	for _, cs := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range cs {
			// Containers may set only the limits of huge pages.
			lists = append(lists, cs[i].Resources.Requests, cs[i].Resources.Limits)
		}
	}
	for _, list := range lists {
		for _, res := range slices.Sorted(maps.Keys(list)) {
			text, ok := strings.CutPrefix(string(res), v1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			size, err := quantity.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("resource %q: size %q: %w", res, text, err)
			}
			out[size.Value()] = size
		}
	}
	return out, nil
}

func names(sizes map[int64]resource.Quantity) string {
	if len(sizes) == 0 {
		return "none"
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(sizes)) {
		q := sizes[n]
		out = append(out, q.String())
	}
	return strings.Join(out, ", ")
}

// samePageSize returns an error if a mount has another page size. The kernel writes 2M for 2Mi.
func samePageSize(e mount.Entry, want resource.Quantity) error {
	for _, o := range e.SuperOptions {
		text, ok := strings.CutPrefix(o, "pagesize=")
		if !ok {
			continue
		}
		if strings.HasSuffix(text, "M") || strings.HasSuffix(text, "G") || strings.HasSuffix(text, "K") {
			text += "i"
		}
		is, err := quantity.Parse(text)
		if err != nil {
			return fmt.Errorf("%s: option %q: %w", e.Target, o, err)
		}
		if is.Cmp(want) != 0 {
			return fmt.Errorf("%s: mounted with pages of %s, want %s", e.Target, is.String(), want.String())
		}
		return nil
	}
	return fmt.Errorf("%s: mounted without the option pagesize", e.Target)
}
