package podmgr

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// The UID is the identity of a pod. Most fields of a spec cannot change under the same UID, as
// with an API server.

// frozen returns the path of the first field that differs between two versions of a pod and must
// not change while the pod keeps its UID. It returns "" if there is no such field.
func frozen(first, now *v1.Pod) string {
	a, b := first.Spec.DeepCopy(), now.Spec.DeepCopy()
	for _, s := range []*v1.PodSpec{a, b} {
		s.NodeName, s.ActiveDeadlineSeconds, s.TerminationGracePeriodSeconds = "", nil, nil
		s.Tolerations, s.SchedulingGates, s.EphemeralContainers, s.Resources = nil, nil, nil, nil
		for _, list := range [][]v1.Container{s.Containers, s.InitContainers} {
			for i := range list {
				list[i].Image, list[i].Resources, list[i].ResizePolicy = "", v1.ResourceRequirements{}, nil
			}
		}
	}
	if equality.Semantic.DeepEqual(a, b) {
		return ""
	}
	return differs("spec", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

// differs returns the path of the first field in which a and b, two values of one type, differ.
// It returns "" if they are equal. path is the path of a and b. In lists of equal length, differs
// compares the fields of the elements.
func differs(path string, a, b reflect.Value) string {
	if equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		return ""
	}
	for i := range a.NumField() {
		f := a.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		x, y, at := a.Field(i), b.Field(i), path+"."+name
		if equality.Semantic.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct && x.Len() == y.Len() && strings.Count(path, "[") == 0 {
			for j := range x.Len() {
				if in := differs(fmt.Sprintf("%s[%d]", at, j), x.Index(j), y.Index(j)); in != "" {
					return in
				}
			}
		}
		return at
	}
	return path
}
