package fit

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

func asking(requests v1.ResourceList) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}}
}

// The result has all missing resources with their amounts; a pod that waits for a plugin lacks
// nothing that other pods could release.
func TestMissing(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	n := &Node{
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("2"),
		},
		Extended: func() map[v1.ResourceName]Count {
			return map[v1.ResourceName]Count{"a.com/dev": {Free: 1, Used: 1}, "a.com/away": {Away: true}}
		},
	}
	scheduled := func(pod *v1.Pod) *v1.Pod {
		pod.Annotations = map[string]string{podmeta.AnnotationSource: podmeta.SourceAPI}
		return pod
	}
	with := func(l v1.ResourceList, name v1.ResourceName, q string) v1.ResourceList {
		l = maps.Clone(l)
		l[name] = resource.MustParse(q)
		return l
	}
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		want   string
		reason string // of Fits
	}{
		{"it fits", asking(list("1", "1Mi")), []*v1.Pod{asking(list("1", "1Mi"))}, "", ""},
		{"one resource", asking(list("1500m", "1Mi")), []*v1.Pod{asking(list("1", "1Mi"))}, "cpu=500m", "OutOfcpu"},
		{"all resources", asking(list("2", "1Gi")), []*v1.Pod{asking(list("1", "1Mi")), asking(list("100m", "1Mi"))}, "cpu=1100m memory=2Mi pods=1", "OutOfpods"},
		{"a device in use", asking(with(list("1", "1Mi"), "a.com/dev", "2")), []*v1.Pod{asking(with(list("1", "1Mi"), "a.com/dev", "1"))}, "a.com/dev=1", "OutOfa.com/dev"},
		{"more devices than there are", asking(with(list("1", "1Mi"), "a.com/dev", "3")), nil, "", "OutOfa.com/dev"},
		{"more devices than there are, of a scheduler", scheduled(asking(with(list("1", "1Mi"), "a.com/dev", "3"))), nil, "a.com/dev=1", "OutOfa.com/dev"},
		{"a device whose plugin is away", asking(with(list("3", "1Mi"), "a.com/away", "3")), nil, "cpu=1", "OutOfcpu"},
		{"a device that nobody has offered", asking(with(list("3", "1Mi"), "b.com/dev", "3")), nil, "", "OutOfb.com/dev"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			missing := n.Missing(tc.pod, tc.others)
			got := ""
			for _, name := range slices.Sorted(maps.Keys(missing)) {
				q := missing[name]
				got += fmt.Sprintf(" %s=%s", name, q.String())
			}
			if len(got) > 0 {
				got = got[1:]
			}
			reason := ""
			if r := n.Fits(tc.pod, tc.others); r != nil {
				reason = r.Reason
			}
			if got != tc.want || reason != tc.reason {
				t.Errorf("%q and %q, want %q and %q", got, reason, tc.want, tc.reason)
			}
		})
	}
}

func TestShortagesNameAllWithUnits(t *testing.T) {
	n := &Node{Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1840m"), v1.ResourceMemory: resource.MustParse("20Gi"), v1.ResourcePods: resource.MustParse("1"),
	}}
	pod := func(cpu, memory string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		}}}}}}
	}
	want := []string{"wants a place among 1 pods, and 1 are there", "wants 64 CPUs, and 1.74 are free", "wants 500Gi of memory, and 19.8Gi are free"}
	if got := n.Shortages(pod("64", "500Gi"), []*v1.Pod{pod("100m", "128Mi")}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := n.Shortages(pod("1", "1Gi"), nil); got != nil {
		t.Errorf("a pod that fits lacks %q", got)
	}
	want = []string{"0.01 of 1.74 free CPUs", "4Mi of 19.8Gi free memory"}
	if got := n.Requests(pod("10m", "4Mi"), []*v1.Pod{pod("100m", "128Mi")}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
