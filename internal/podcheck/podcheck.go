package podcheck

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxErrors limits the number of returned errors, since they become part of a pod's status.
const maxErrors = 20

// Pod checks a pod and returns at most 20 errors, or none if the pod is acceptable. Each error has
// the field, its value, cut to 100 bytes, and the allowed values.
func Pod(p *v1.Pod) field.ErrorList {
	v := &checker{pod: p}
	v.names()
	v.metadata()
	v.words()
	v.spec()
	return v.errs
}

// checker collects the errors of one pod.
type checker struct {
	pod  *v1.Pod
	errs field.ErrorList
}

func (v *checker) full() bool { return len(v.errs) >= maxErrors }

func (v *checker) add(e *field.Error) {
	if !v.full() {
		v.errs = append(v.errs, e)
	}
}

func (v *checker) invalid(p *field.Path, value any, format string, args ...any) {
	if s, ok := value.(string); ok {
		value = clip(s)
	}
	v.add(field.Invalid(p, value, fmt.Sprintf(format, args...)))
}

// says adds an error with the first of msgs, which a function of package validation has returned
// for value. It does nothing if there are none.
func (v *checker) says(p *field.Path, value string, msgs []string) {
	if len(msgs) > 0 {
		v.invalid(p, value, "%s", msgs[0])
	}
}

// clip shortens a value to 100 bytes for an error, and adds the value's length.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + fmt.Sprintf("... (%d bytes)", len(s))
}

// containers yields the containers of all three lists and their paths.
func (v *checker) containers(yield func(*v1.Container, *field.Path) bool) {
	spec := field.NewPath("spec")
	for i := range v.pod.Spec.InitContainers {
		if !yield(&v.pod.Spec.InitContainers[i], spec.Child("initContainers").Index(i)) {
			return
		}
	}
	for i := range v.pod.Spec.Containers {
		if !yield(&v.pod.Spec.Containers[i], spec.Child("containers").Index(i)) {
			return
		}
	}
	for i := range v.pod.Spec.EphemeralContainers {
		c := v1.Container(v.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if !yield(&c, spec.Child("ephemeralContainers").Index(i)) {
			return
		}
	}
}
