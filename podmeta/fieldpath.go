package podmeta

import (
	v1 "k8s.io/api/core/v1"
)

// FieldPath returns the path of a container in events (involvedObject.fieldPath):
// "spec.containers{name}", and likewise for init and ephemeral containers. It is "" if the
// pod has no container of that name.
func FieldPath(pod *v1.Pod, container string) string {
	for _, l := range []struct {
		field string
		has   func() bool
	}{
		{"spec.containers", func() bool { return named(pod.Spec.Containers, container) }},
		{"spec.initContainers", func() bool { return named(pod.Spec.InitContainers, container) }},
		{"spec.ephemeralContainers", func() bool {
			for i := range pod.Spec.EphemeralContainers {
				if pod.Spec.EphemeralContainers[i].Name == container {
					return true
				}
			}
			return false
		}},
	} {
		if container != "" && l.has() {
			return l.field + "{" + container + "}"
		}
	}
	return ""
}

func named(list []v1.Container, name string) bool {
	for i := range list {
		if list[i].Name == name {
			return true
		}
	}
	return false
}
