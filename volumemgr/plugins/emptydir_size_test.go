package plugins

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

func amount(s string) *resource.Quantity { q := resource.MustParse(s); return &q }

// container has limits, name and quantity in turn.
func container(limits ...string) v1.Container {
	c := v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}
	for i := 0; i < len(limits); i += 2 {
		c.Resources.Limits[v1.ResourceName(limits[i])] = resource.MustParse(limits[i+1])
	}
	return c
}

func podOf(init []v1.Container, cs ...v1.Container) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{InitContainers: init, Containers: cs}}
}

func TestMemorySize(t *testing.T) {
	limited := podOf(nil, container("memory", "2Gi"), container("memory", "1Gi"))
	always := v1.ContainerRestartPolicyAlways
	sidecar := container("memory", "1Gi")
	sidecar.RestartPolicy = &always
	whole := podOf(nil, container("memory", "2Gi"))
	whole.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	const gi = 1 << 30
	for _, tc := range []struct {
		name        string
		allocatable int64
		pod         *v1.Pod
		limit       *resource.Quantity
		want        int64
	}{
		{"the node is smallest", 2 * gi, limited, amount("4Gi"), 2 * gi},
		{"the pod is smallest", 8 * gi, limited, amount("4Gi"), 3 * gi},
		{"the limit is smallest", 8 * gi, limited, amount("1Gi"), gi},
		{"a limit of nothing is none", 8 * gi, podOf(nil), amount("0"), 8 * gi},
		{"the node is not known", 0, limited, nil, 3 * gi},
		{"nothing is known", 0, podOf(nil), nil, 0},
		{"an init container has more", 8 * gi, podOf([]v1.Container{container("memory", "5Gi")}, container("memory", "2Gi")), nil, 5 * gi},
		{"a sidecar stays", 8 * gi, podOf([]v1.Container{sidecar}, container("memory", "2Gi")), nil, 3 * gi},
		{"the pod's own limit", 8 * gi, whole, nil, gi},
	} {
		if got := memorySize(tc.allocatable, tc.pod, tc.limit); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestPageSize(t *testing.T) {
	two, one := container("hugepages-2Mi", "100Mi"), container("hugepages-1Gi", "2Gi")
	both := container("hugepages-2Mi", "100Mi", "hugepages-1Gi", "2Gi")
	podLevel := podOf(nil, container())
	podLevel.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}}
	requests := podOf(nil, v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"hugepages-1Gi": resource.MustParse("1Gi")}}})
	for _, tc := range []struct {
		name   string
		medium v1.StorageMedium
		pod    *v1.Pod
		want   string // "": an error
	}{
		{"one size", "HugePages", podOf(nil, two), "2Mi"},
		{"another size", "HugePages", podOf(nil, one), "1Gi"},
		{"requested", "HugePages", requests, "1Gi"},
		{"one size, twice", "HugePages", podOf(nil, two, two), "2Mi"},
		{"of an init container", "HugePages", podOf([]v1.Container{two}, container()), "2Mi"},
		{"of both", "HugePages", podOf([]v1.Container{two}, two), "2Mi"},
		{"of the pod", "HugePages", podLevel, "2Mi"},
		{"none", "HugePages", podOf(nil, container("memory", "1Gi")), ""},
		{"two sizes", "HugePages", podOf(nil, both), ""},
		{"two sizes in two containers", "HugePages", podOf(nil, one, two), ""},
		{"two sizes, one of an init container", "HugePages", podOf([]v1.Container{one}, two), ""},
		{"this size", "HugePages-2Mi", podOf(nil, both), "2Mi"},
		{"that size", "HugePages-1Gi", podOf(nil, both), "1Gi"},
		{"this size, of the pod", "HugePages-2Mi", podLevel, "2Mi"},
		{"this size, of an init container", "HugePages-1Gi", podOf([]v1.Container{one}, two), "1Gi"},
		{"not requested", "HugePages-1Gi", podOf(nil, two), ""},
		{"no size", "HugePages-", podOf(nil, two), ""},
		{"no number", "HugePages-foo", podOf(nil, two), ""},
		{"a resource of no size", "HugePages", podOf(nil, container("hugepages-foo", "1Gi")), ""},
	} {
		got, err := pageSize(tc.medium, tc.pod)
		if (err == nil) != (tc.want != "") || err == nil && got.String() != tc.want {
			t.Errorf("%s: %s (%v), want %q", tc.name, got.String(), err, tc.want)
		}
	}
}

func TestSamePageSize(t *testing.T) {
	for _, tc := range []struct {
		options []string
		want    string
		ok      bool
	}{
		{[]string{"rw", "pagesize=2M"}, "2Mi", true}, {[]string{"pagesize=2Mi"}, "2Mi", true}, {[]string{"pagesize=1024M"}, "1Gi", true},
		{[]string{"pagesize=1G"}, "1Gi", true}, {[]string{"pagesize=64K"}, "64Ki", true}, {[]string{"pagesize=2M"}, "1Gi", false},
		{[]string{"rw"}, "2Mi", false}, {nil, "2Mi", false}, {[]string{"pagesize=foo"}, "2Mi", false}, {[]string{"pagesize="}, "2Mi", false},
	} {
		if err := samePageSize(mount.Entry{SuperOptions: tc.options}, resource.MustParse(tc.want)); (err == nil) != tc.ok {
			t.Errorf("%q for %s: %v", tc.options, tc.want, err)
		}
	}
}

func FuzzPageSize(f *testing.F) {
	f.Add("HugePages-2Mi", "hugepages-2Mi", "pagesize=2M")
	f.Add("HugePages", "hugepages-1Gi", "pagesize=1Gi")
	f.Add("HugePages-", "hugepages-", "pagesize=")
	f.Add("HugePages-9e99", "hugepages--1", "pagesize=1e999999999")
	f.Fuzz(func(t *testing.T, medium, name, option string) {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceName(name): resource.MustParse("1Gi")},
		}}}}}
		size, err := pageSize(v1.StorageMedium(medium), pod)
		if err != nil {
			return
		}
		sizes, err := requested(pod)
		if _, ok := sizes[size.Value()]; err != nil || !ok {
			t.Fatalf("pages of %s, which the pod does not request: %v, %v", size.String(), sizes, err)
		}
		_ = samePageSize(mount.Entry{Target: "/t", SuperOptions: []string{option}}, size)
	})
}
