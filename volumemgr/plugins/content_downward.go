package plugins

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/volumemgr/internal/atomicdir"
)

// downward adds the files with fields of the pod. allocatable has the node's resources, which
// replace limits that are not set.
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
			err = errors.New("want fieldRef or resourceFieldRef")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("downwardAPI %q: %w", item.Path, err))
			continue
		}
		f.add(item.Path, file{File: atomicdir.File{Data: []byte(text), Mode: modeOf(item.Mode, standard)}})
	}
	return errors.Join(errs...)
}

// fieldOf returns a field of the pod's metadata.
func fieldOf(pod *v1.Pod, field string) (string, error) {
	value, ok := podmeta.Field(pod, field)
	if !ok {
		return "", fmt.Errorf("field %q is not supported; want metadata.name, .namespace, .uid, .labels, .annotations, or one of the last two with ['KEY']", field)
	}
	return value, nil
}

// resourceOf returns a request or limit of the container that ref names.
func resourceOf(pod *v1.Pod, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	c := containerOf(pod, ref.ContainerName)
	if c == nil {
		return "", fmt.Errorf("the pod has no container %q", ref.ContainerName)
	}
	value, err := podmeta.Resource(pod, c, ref, allocatable)
	if err != nil {
		return "", fmt.Errorf("resource %w", err)
	}
	return value, nil
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
