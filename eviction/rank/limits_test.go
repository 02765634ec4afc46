package rank

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestViolated(t *testing.T) {
	ten := resource.MustParse("10")
	zero := resource.MustParse("0")
	limited := func(q *resource.Quantity) v1.Container {
		c := v1.Container{Name: "c"}
		if q != nil {
			c.Resources.Limits = v1.ResourceList{disk: *q}
		}
		return c
	}
	volume := func(q *resource.Quantity) []v1.Volume {
		return []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: q}}}}
	}
	inVolume := func(n int64) *Usage { return &Usage{Volumes: []VolumeUsage{{"v", Disk{Bytes: n}}}} }
	inContainer := func(rootfs, logs int64) *Usage {
		return &Usage{Containers: []ContainerUsage{{Name: "c", Rootfs: &Disk{Bytes: rootfs}, Logs: &Disk{Bytes: logs}}}}
	}
	for _, tt := range []struct {
		name      string
		spec      v1.PodSpec
		usage     *Usage
		dedicated bool
		want      Limit
	}{
		{"emptyDir over", v1.PodSpec{Volumes: volume(&ten)}, inVolume(11), false, EmptyDirLimit},
		{"emptyDir at its limit", v1.PodSpec{Volumes: volume(&ten)}, inVolume(10), false, ""},
		{"emptyDir without limit", v1.PodSpec{Volumes: volume(nil)}, inVolume(11), false, ""},
		{"emptyDir with limit 0", v1.PodSpec{Volumes: volume(&zero)}, inVolume(11), false, ""},
		{"emptyDir not measured", v1.PodSpec{Volumes: volume(&ten)}, &Usage{}, false, ""},
		{"nothing measured", v1.PodSpec{Volumes: volume(&ten)}, nil, false, ""},
		{"pod over", v1.PodSpec{Containers: []v1.Container{limited(&ten)}}, &Usage{EphemeralStorage: 11}, false, PodLimit},
		{"pod at its limit", v1.PodSpec{Containers: []v1.Container{limited(&ten)}}, &Usage{EphemeralStorage: 10}, false, ""},
		{"pod without limit", v1.PodSpec{Containers: []v1.Container{limited(nil)}}, &Usage{EphemeralStorage: 11}, false, ""},
		{"one container has a limit", v1.PodSpec{Containers: []v1.Container{limited(&ten), limited(nil)}}, &Usage{EphemeralStorage: 11}, false, PodLimit},
		{"two limits add up", v1.PodSpec{Containers: []v1.Container{limited(&ten), limited(&ten)}}, &Usage{EphemeralStorage: 11}, false, ""},
		{"an init container's limit", v1.PodSpec{InitContainers: []v1.Container{limited(&ten)}}, &Usage{EphemeralStorage: 11}, false, PodLimit},
		{"overhead adds to the limit", v1.PodSpec{Containers: []v1.Container{limited(&ten)}, Overhead: v1.ResourceList{disk: ten}}, &Usage{EphemeralStorage: 11}, false, ""},
		{"container over", v1.PodSpec{Containers: []v1.Container{limited(&ten)}}, inContainer(6, 5), false, ContainerLimit},
		{"container's rootfs elsewhere", v1.PodSpec{Containers: []v1.Container{limited(&ten)}}, inContainer(6, 5), true, ""},
		{"logs alone over", v1.PodSpec{Containers: []v1.Container{limited(&ten)}}, inContainer(0, 11), true, ContainerLimit},
		{"container without limit", v1.PodSpec{Containers: []v1.Container{limited(nil)}}, inContainer(6, 5), false, ""},
		{"init container over is not looked at", v1.PodSpec{InitContainers: []v1.Container{limited(&ten)}}, inContainer(6, 5), false, ""},
		{"the volume comes first", v1.PodSpec{Volumes: volume(&ten), Containers: []v1.Container{limited(&ten)}},
			&Usage{EphemeralStorage: 99, Volumes: []VolumeUsage{{"v", Disk{Bytes: 11}}}}, false, EmptyDirLimit},
		{"a second volume", v1.PodSpec{Volumes: append([]v1.Volume{{Name: "a"}}, volume(&ten)...)}, inVolume(11), false, EmptyDirLimit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1.Pod{Spec: tt.spec}
			got, ok := Violated(Candidate{Pod: p, Usage: tt.usage}, tt.dedicated)
			if got.Limit != tt.want || ok != (tt.want != "") {
				t.Errorf("Violated = %+v, %v; want %q", got, ok, tt.want)
			}
			if ok && (!HasLimits(p) || got.Used <= got.Max || got.Quantity() != "10") {
				t.Errorf("%+v makes no sense", got)
			}
		})
	}
}
