package resources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func requests(cpu string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
}

func TestApply(t *testing.T) {
	pod := func(podLevel, init, regular string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "i", Resources: requests(init)}},
			Containers:     []v1.Container{{Name: "c", Resources: requests(regular)}},
		}}
		if podLevel != "" {
			r := requests(podLevel)
			p.Spec.Resources = &r
		}
		return p
	}
	for _, tc := range []struct {
		name            string
		allocated, asks *v1.Pod
		same            bool
	}{
		{"nothing else", pod("", "1", "1"), pod("", "1", "1"), true},
		{"another way of writing", pod("", "1", "1"), pod("", "1000m", "1"), true},
		{"init container", pod("", "1", "1"), pod("", "2", "1"), false},
		{"container", pod("", "1", "1"), pod("", "1", "2"), false},
		{"pod level", pod("3", "1", "1"), pod("4", "1", "1"), false},
		{"pod level is new", pod("", "1", "1"), pod("4", "1", "1"), false},
		{"pod level goes", pod("4", "1", "1"), pod("", "1", "1"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, asked := allocationOf(tc.allocated), tc.asks.DeepCopy()
			got := a.apply(tc.asks)
			if (got == tc.asks) != tc.same || a.differs(tc.asks) == tc.same {
				t.Errorf("the same pod: %v, want %v", got == tc.asks, tc.same)
			}
			if a.differs(got) {
				t.Errorf("got %+v, want the resources of %+v", got.Spec, tc.allocated.Spec)
			}
			if allocationOf(asked).differs(tc.asks) {
				t.Error("the pod that was given has changed")
			}
		})
	}
	asks := pod("", "1", "1")
	asks.Spec.Containers = append(asks.Spec.Containers, v1.Container{Name: "new", Resources: requests("7")})
	if allocationOf(pod("", "1", "1")).differs(asks) {
		t.Error("a new container does not have what it asks for")
	}
}

func TestChange(t *testing.T) {
	cpu := func(v string) v1.ResourceList { return requests(v).Requests }
	for _, tc := range []struct {
		was, is v1.ResourceList
		want    string
	}{
		{nil, nil, ""}, {nil, cpu("1"), "add"}, {cpu("1"), nil, "remove"},
		{cpu("1"), cpu("2"), "increase"}, {cpu("2"), cpu("1"), "decrease"}, {cpu("1"), cpu("1000m"), ""},
	} {
		if got := change(v1.ResourceCPU, tc.was, tc.is); got != tc.want {
			t.Errorf("%v to %v: %q, want %q", tc.was, tc.is, got, tc.want)
		}
	}
}
