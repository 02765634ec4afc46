package content

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/volumemgr/atomicdir"
)

// downward adds what the pod says of itself. allocatable is what the node has,
// for limits that are not set.
func (f files) downward(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, standard *int32, allocatable v1.ResourceList) error {
	if standard == nil {
		return errNoMode
	}
	var errs []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = fieldOf(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = resourceOf(pod, item.ResourceFieldRef, allocatable)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("downwardAPI %q: %w", item.Path, err))
			continue
		}
		f.add(item.Path, file{File: atomicdir.File{Data: []byte(text), Mode: modeOf(item.Mode, standard)}})
	}
	return errors.Join(errs...)
}

// fieldOf is a field of the pod. A label or annotation that is not there is
// empty.
func fieldOf(pod *v1.Pod, field string) (string, error) {
	switch field {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	for prefix, m := range map[string]map[string]string{"metadata.labels['": pod.Labels, "metadata.annotations['": pod.Annotations} {
		if rest, ok := strings.CutPrefix(field, prefix); ok {
			if key, ok := strings.CutSuffix(rest, "']"); ok {
				return m[key], nil
			}
		}
	}
	return "", fmt.Errorf("field %q is not supported; want metadata.name, .namespace, .uid, .labels, .annotations, or one of the last two with ['KEY']", field)
}

// lines are key="value" for each key in order, the value as Go quotes it.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(out, "\n")
}

// resourceOf is a request or limit of a container in units of the divisor,
// rounded up. A limit that is not set is the pod's, else what the node has.
func resourceOf(pod *v1.Pod, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	c := containerOf(pod, ref.ContainerName)
	if c == nil {
		return "", fmt.Errorf("the pod has no container %q", ref.ContainerName)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	switch {
	case kind != "limits" && kind != "requests":
		return "", fmt.Errorf("resource %q, want limits.NAME or requests.NAME", ref.Resource)
	case res != v1.ResourceCPU && res != v1.ResourceMemory && res != v1.ResourceEphemeralStorage && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
		return "", fmt.Errorf("resource %q, want cpu, memory, ephemeral-storage or hugepages-SIZE", ref.Resource)
	}
	q := c.Resources.Requests[res]
	if kind == "limits" {
		var ok bool
		if q, ok = c.Resources.Limits[res]; !ok && pod.Spec.Resources != nil {
			q, ok = pod.Spec.Resources.Limits[res]
		}
		if !ok {
			q = allocatable[res]
		}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	a, b := q.Value(), divisor.Value()
	if res == v1.ResourceCPU {
		a, b = q.MilliValue(), divisor.MilliValue()
	}
	if b <= 0 {
		return "", fmt.Errorf("divisor %s of %q, want more than 0", divisor.String(), ref.Resource)
	}
	n := a / b
	if a%b > 0 {
		n++
	}
	return strconv.FormatInt(n, 10), nil
}

func containerOf(pod *v1.Pod, name string) *v1.Container {
	for _, cs := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range cs {
			if cs[i].Name == name {
				return &cs[i]
			}
		}
	}
	return nil
}
