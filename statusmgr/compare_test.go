package statusmgr

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notOurs are the fields of a status in which others speak, or which have
// rules of their own.
var notOurs = []string{"Conditions", "ResourceClaimStatuses", "ExtendedResourceClaimStatus", "NodeAllocatableResourceClaimStatuses"}

// Every field of a status is looked at, also those that the API gets later.
func TestComparisonSeesEveryField(t *testing.T) {
	full := v1.PodStatus{}
	fill(reflect.ValueOf(&full).Elem())
	if !sameStatus(&full, full.DeepCopy()) {
		t.Fatal("a status differs from its copy")
	}
	seen := 0
	for _, path := range leaves(reflect.TypeFor[v1.PodStatus](), nil) {
		for _, a := range []v1.PodStatus{full, {}} {
			b := *a.DeepCopy()
			if !change(reflect.ValueOf(&b).Elem(), path) {
				continue // what it would be in is not there
			}
			seen++
			same := slices.Contains(notOurs, path[0])
			if path[0] != "Conditions" && (sameStatus(&a, &b) != same || sameStatus(&b, &a) != same) {
				t.Errorf("%v is changed: same %v, want %v", path, !same, same)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d changes were tried", seen)
	}
}

// fill gives every field a value, every list and map one element.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.NewTime(time.Unix(1, 0))
		return
	case *resource.Quantity:
		*x = resource.MustParse("1")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(1)
	}
}

// leaves lists the ways to everything that has no parts: names of fields, "*"
// for what a pointer points to, "[]" for the element of a list or map.
func leaves(typ reflect.Type, path []string) (out [][]string) {
	step := func(s string) []string { return append(slices.Clone(path), s) }
	if typ == reflect.TypeFor[metav1.Time]() || typ == reflect.TypeFor[resource.Quantity]() {
		return [][]string{path}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return append(leaves(typ.Elem(), step("*")), path)
	case reflect.Slice, reflect.Map:
		return append(leaves(typ.Elem(), step("[]")), path)
	case reflect.Struct:
		for i := range typ.NumField() {
			out = append(out, leaves(typ.Field(i).Type, step(typ.Field(i).Name))...)
		}
		return out
	}
	return [][]string{path}
}

// change makes what the path leads to another, and reports whether it is there.
func change(v reflect.Value, path []string) bool {
	if len(path) == 0 {
		return alter(v)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && change(v.Elem(), path[1:])
	case reflect.Slice:
		return v.Len() > 0 && change(v.Index(0), path[1:])
	case reflect.Map:
		for _, key := range v.MapKeys() {
			x := reflect.New(v.Type().Elem()).Elem()
			x.Set(v.MapIndex(key))
			ok := change(x, path[1:])
			v.SetMapIndex(key, x)
			return ok
		}
		return false
	}
	return change(v.FieldByName(path[0]), path[1:])
}

func alter(v reflect.Value) bool {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.NewTime(x.Add(time.Hour))
		return true
	case *resource.Quantity:
		x.Add(resource.MustParse("1"))
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsZero() {
			fill(v)
		} else {
			v.SetZero()
		}
	case reflect.String:
		v.SetString(v.String() + "y")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	default:
		v.SetInt(v.Int() + 1)
	}
	return true
}

func TestResourceListsAreCompared(t *testing.T) {
	list := func(pairs ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	for i, tc := range []struct {
		a, b v1.ResourceList
		same bool
	}{
		{nil, list(), true},
		{list("cpu", "1"), list("cpu", "1000m"), true},
		{list("cpu", "1"), list("memory", "1"), false},
		{list("cpu", "1", "x", "1"), list("cpu", "1", "x", "1"), true},
		{list("cpu", "1", "x", "1"), list("cpu", "1", "x", "2"), false},
		{list("cpu", "1", "x", "1"), list("cpu", "1", "y", "1"), false},
		{list("x", "1", "y", "1"), list("x", "1", "cpu", "1"), false},
	} {
		a, b := v1.PodStatus{AllocatedResources: tc.a}, v1.PodStatus{AllocatedResources: tc.b}
		if got := sameStatus(&a, &b); got != tc.same || sameStatus(&b, &a) != tc.same {
			t.Errorf("row %d: %v and %v: same %v", i, tc.a, tc.b, got)
		}
	}
}

// Nothing of what is handed over is written through its pointers, and to
// normalize twice is to do it once.
func TestNormalizeIsIdempotent(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}, {Name: "h"}}}}
	at := metav1.NewTime(time.Unix(5, 600))
	st := v1.PodStatus{StartTime: &at, Conditions: []v1.PodCondition{{LastTransitionTime: at}}}
	for _, name := range []string{"h", "other", "i"} {
		st.InitContainerStatuses = append(st.InitContainerStatuses, v1.ContainerStatus{
			Name: name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at}},
		})
	}
	shared := st.InitContainerStatuses[0].State.Running
	normalize(pod, &st)
	once := st.DeepCopy()
	normalize(pod, &st)
	if !reflect.DeepEqual(once, &st) {
		t.Errorf("%+v, and once more: %+v", once, st)
	}
	if at.Nanosecond() != 600 || shared.StartedAt.Nanosecond() != 600 {
		t.Error("what the status pointed to was changed")
	}
	var order string
	for _, c := range st.InitContainerStatuses {
		order += c.Name + " "
		if c.State.Running.StartedAt.Nanosecond() != 0 || c.LastTerminationState.Terminated.FinishedAt.Nanosecond() != 0 {
			t.Errorf("%s has times of parts of a second", c.Name)
		}
	}
	if order != "other i h " || st.StartTime.Nanosecond() != 0 {
		t.Errorf("order %q, start %v", order, st.StartTime)
	}
}

func TestLabelsAreFew(t *testing.T) {
	exits, reasons := map[string]bool{}, map[string]bool{}
	for i := int32(-5000); i < 5000; i++ {
		exits[exitLabel(i)] = true
		reasons[reasonLabel(fmt.Sprint("odd reason ", i))] = true
	}
	if len(exits) != 257 || len(reasons) != 1 || reasonLabel("OOMKilled") != "OOMKilled" {
		t.Errorf("%d exit codes and %d reasons", len(exits), len(reasons))
	}
}
