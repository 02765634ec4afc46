package podmeta

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestFieldPath(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "a"}}, InitContainers: []v1.Container{{Name: "i"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
	}}
	for name, want := range map[string]string{
		"a": "spec.containers{a}", "i": "spec.initContainers{i}", "e": "spec.ephemeralContainers{e}", "x": "", "": "",
	} {
		if got := FieldPath(p, name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
