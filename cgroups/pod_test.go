package cgroups

import (
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// list reads "cpu=1 memory=1Gi".
func list(s string) v1.ResourceList {
	if s == "" {
		return nil
	}
	out := v1.ResourceList{}
	for f := range strings.FieldsSeq(s) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// ctr reads "requests/limits".
func ctr(s string) v1.Container {
	requests, limits, _ := strings.Cut(s, "/")
	return v1.Container{Resources: v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
}

func podWith(uid string, containers ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = uid, "ns", types.UID(uid)
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, ctr(c))
	}
	return p
}

// shown is what of resources a table compares.
type shown struct {
	shares  uint64
	quota   int64 // 0: not set
	period  uint64
	memory  int64
	pids    int64
	unified string
}

func show(r Resources) shown {
	var out shown
	if r.CPUShares != nil {
		out.shares = *r.CPUShares
	}
	if r.CPUQuota != nil {
		out.quota, out.period = *r.CPUQuota, *r.CPUPeriod
	}
	if r.Memory != nil {
		out.memory = *r.Memory
	}
	if r.Pids != nil {
		out.pids = *r.Pids
	}
	for _, file := range []string{memoryMin, memoryLow} {
		if v, ok := r.Unified[file]; ok {
			out.unified += file + "=" + v
		}
	}
	return out
}

func TestOfPod(t *testing.T) {
	const mi = 1 << 20
	podLevel := func(p *v1.Pod, s string) *v1.Pod {
		r := ctr(s).Resources
		p.Spec.Resources = &r
		return p
	}
	initOf := func(p *v1.Pod, s string) *v1.Pod {
		p.Spec.InitContainers = append(p.Spec.InitContainers, ctr(s))
		return p
	}
	overhead := func(p *v1.Pod, s string) *v1.Pod {
		p.Spec.Overhead = list(s)
		return p
	}
	exclusive := PodOptions{ExclusiveCPUs: func(*v1.Pod) bool { return true }}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		o    PodOptions
		want shown
	}{
		{"best effort", podWith("p", "/"), PodOptions{}, shown{shares: 2}},
		{"best effort with what does not count", podWith("p", "hugepages-2Mi=2Mi/hugepages-2Mi=2Mi"), PodOptions{}, shown{shares: 2}},
		{"guaranteed", podWith("p", "/cpu=100m memory=100Mi"), PodOptions{},
			shown{shares: 102, quota: 10000, period: 100000, memory: 100 * mi}},
		{"guaranteed by requests", podWith("p", "cpu=100m memory=100Mi/cpu=100m memory=100Mi"), PodOptions{},
			shown{shares: 102, quota: 10000, period: 100000, memory: 100 * mi}},
		{"burstable, all limited", podWith("p", "cpu=100m memory=100Mi/cpu=200m memory=200Mi"), PodOptions{},
			shown{shares: 102, quota: 20000, period: 100000, memory: 200 * mi}},
		{"burstable, one without limits", podWith("p", "cpu=100m memory=100Mi/cpu=200m memory=200Mi", "cpu=100m/"), PodOptions{},
			shown{shares: 204}},
		{"init container without limits", initOf(podWith("p", "cpu=100m memory=100Mi/cpu=200m memory=200Mi"), "/"), PodOptions{},
			shown{shares: 102}},
		{"one without a memory limit", podWith("p", "cpu=100m memory=100Mi/cpu=200m"), PodOptions{},
			shown{shares: 102, quota: 20000, period: 100000}},
		{"pod-level requests alone", podLevel(podWith("p", "cpu=100m memory=100Mi/cpu=200m memory=200Mi"), "cpu=500m memory=100Mi/"), PodOptions{},
			shown{shares: 512, quota: 20000, period: 100000, memory: 200 * mi}},
		{"pod-level limits make up for missing ones", podLevel(podWith("p", "cpu=100m/"), "/cpu=300m memory=300Mi"), PodOptions{},
			shown{shares: 102, quota: 30000, period: 100000, memory: 300 * mi}},
		{"pod-level limits alone", podLevel(podWith("p", "/"), "/cpu=300m memory=300Mi"), PodOptions{},
			shown{shares: 307, quota: 30000, period: 100000, memory: 300 * mi}},
		{"a request of 0 is one", podWith("p", "cpu=0/cpu=300m"), PodOptions{}, shown{shares: 2, quota: 30000, period: 100000}},
		{"overhead widens both", overhead(podWith("p", "cpu=100m memory=100Mi/cpu=200m memory=200Mi"), "cpu=100m memory=100Mi"), PodOptions{},
			shown{shares: 204, quota: 30000, period: 100000, memory: 300 * mi}},
		{"tuned period", podWith("p", "cpu=100m/cpu=100m"), PodOptions{CPUPeriod: 5e6}, shown{shares: 102, quota: 1000, period: 5000}},
		{"quota off", podWith("p", "cpu=100m/cpu=100m"), PodOptions{NoCPUQuota: true}, shown{shares: 102, quota: -1, period: 100000}},
		{"CPUs of its own", podWith("p", "cpu=1 memory=1Mi/cpu=1 memory=1Mi"), exclusive, shown{shares: 1024, quota: -1, period: 100000, memory: mi}},
		{"pids", podWith("p", "/"), PodOptions{Pids: 1024}, shown{shares: 2, pids: 1024}},
		{"no pids limit", podWith("p", "/"), PodOptions{Pids: -1}, shown{shares: 2}},
		{"guaranteed, reserved", podWith("p", "cpu=1 memory=1Mi/cpu=1 memory=1Mi"), PodOptions{ReserveMemory: true},
			shown{shares: 1024, quota: 100000, period: 100000, memory: mi, unified: "memory.min=1048576"}},
		{"burstable, reserved", podWith("p", "memory=1Mi/"), PodOptions{ReserveMemory: true}, shown{shares: 2, unified: "memory.low=1048576"}},
		{"best effort, reserved", podWith("p", "/"), PodOptions{ReserveMemory: true}, shown{shares: 2}},
	} {
		before := tc.pod.DeepCopy()
		if got := show(OfPod(tc.pod, tc.o)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if before.String() != tc.pod.String() {
			t.Errorf("%s: the pod was changed", tc.name)
		}
	}
}

func TestHugepagesOf(t *testing.T) {
	got := hugepagesOf(list("hugepages-2Mi=128 hugepages-2097152=256 hugepages-4Mi=512 4Mi=9 hugepages-x=1 cpu=1"))
	if want := (map[int64]int64{2 << 20: 384, 4 << 20: 512}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestHugetlbSizes(t *testing.T) {
	for size, name := range map[int64]string{2 << 20: "2MB", 1 << 30: "1GB", 64 << 10: "64KB", 1000: "1000B", 16 << 30: "16GB"} {
		if got := hugetlbSize(size); got != name {
			t.Errorf("hugetlbSize(%d) = %s, want %s", size, got, name)
		}
		if got, ok := parseHugetlbFile("hugetlb."+name+".max", ".max"); !ok || got != size {
			t.Errorf("parseHugetlbFile of %s = %d, %v, want %d", name, got, ok, size)
		}
	}
}
