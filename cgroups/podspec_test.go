package cgroups_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
)

// A Manager is what resizes go through.
var _ podruntime.PodCgroups = (*cgroups.Manager)(nil)

// The pod's cgroup and what its sandbox is told of agree, where both speak:
// package podspec counts for the runtime, in numbers of its own, since its
// dependencies are ten times those of this package.
func TestAgreesWithPodspec(t *testing.T) {
	for _, tc := range []struct{ requests, limits string }{
		{"cpu=1m memory=1Mi", "cpu=2m memory=2Mi"}, {"cpu=100m memory=1Mi", "cpu=200m memory=2Mi"},
		{"cpu=3 memory=1Gi", "cpu=3 memory=1Gi"}, {"cpu=1999m memory=1Gi", "cpu=123456m memory=3Gi"},
		{"cpu=500 memory=1Gi", "cpu=1000 memory=1Ti"},
	} {
		p := pod("p", tc.requests, tc.limits)
		got, want := cgroups.OfPod(p, cgroups.PodOptions{}), podspec.PodResources(podspec.Input{Pod: p})
		if int64(*got.CPUShares) != min(want.CpuShares, cgroups.MaxShares) || *got.CPUQuota != want.CpuQuota || *got.Memory != want.MemoryLimitInBytes {
			t.Errorf("%+v: shares %d, quota %d, memory %d; podspec has %v", tc, *got.CPUShares, *got.CPUQuota, *got.Memory, want)
		}
	}
	p := pod("p", "cpu=100m", "hugepages-2Mi=4Mi hugepages-1Gi=1Gi")
	p.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = p.Spec.Containers[0].Resources.Limits["hugepages-2Mi"]
	got := cgroups.OfPod(p, cgroups.PodOptions{}).Hugepages
	in := podspec.Input{Pod: p, Node: podspec.Node{Capacity: v1.ResourceList{}}}
	want := podspec.Resources(in, &p.Spec.Containers[0], p.Spec.Containers[0].Resources).HugepageLimits[0]
	if want.PageSize != "2MB" || got[2<<20] != int64(want.Limit) {
		t.Errorf("huge pages %v; podspec has %v", got, want)
	}
}
