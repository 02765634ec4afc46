package podspec

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A container without a CPU limit has that of the pod, as with memory; without
// a request it weighs as much as its limit.
func TestCPULimitOfThePod(t *testing.T) {
	cpus := func(s string) v1.ResourceList {
		if s == "" {
			return nil
		}
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(s)}
	}
	for _, tc := range []struct {
		name                  string
		pod, limit, request   string
		wantShares, wantQuota int64
	}{
		{"none", "", "", "", 2, 0},
		{"the pod's", "2", "", "", 2048, 200000},
		{"the pod's, and a request", "2", "", "500m", 512, 200000},
		{"the pod's, and a request of nothing", "2", "", "0", 2, 200000},
		{"its own", "2", "1", "", 1024, 100000},
		{"its own, without the pod's", "", "1", "", 1024, 100000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := v1.Container{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Limits: cpus(tc.limit), Requests: cpus(tc.request)}}
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
			if tc.pod != "" {
				pod.Spec.Resources = &v1.ResourceRequirements{Limits: cpus(tc.pod)}
			}
			r := Resources(Input{Pod: pod}, &c, c.Resources)
			if r.GetCpuShares() != tc.wantShares || r.GetCpuQuota() != tc.wantQuota {
				t.Errorf("shares %d, quota %d; want %d, %d", r.GetCpuShares(), r.GetCpuQuota(), tc.wantShares, tc.wantQuota)
			}
		})
	}
}
