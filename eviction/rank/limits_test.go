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
	inVolume := func(n int64) *Usage { return &Usage{Volumes: []VolumeUsage{{Name: "v", Used: Disk{Bytes: n}}}} }
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
			&Usage{EphemeralStorage: 99, Volumes: []VolumeUsage{{Name: "v", Used: Disk{Bytes: 11}}}}, false, EmptyDirLimit},
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

func TestLevel(t *testing.T) {
	ten, twenty := resource.MustParse("10"), resource.MustParse("20")
	volume := func(size *resource.Quantity, medium v1.StorageMedium) v1.Volume {
		return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: size, Medium: medium}}}
	}
	pod := func(limit *resource.Quantity, volumes ...v1.Volume) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Volumes: volumes, Containers: []v1.Container{{Name: "c"}}}}
		if limit != nil {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{disk: *limit}
		}
		return p
	}
	used := &Usage{EphemeralStorage: 14, Volumes: []VolumeUsage{{Name: "v", Used: Disk{Bytes: 5}}}} // 9 beside the volume
	for _, tt := range []struct {
		name  string
		pod   *v1.Pod
		usage *Usage
		want  int64 // -99: not limited
	}{
		{"no limit", pod(nil, volume(nil, "")), used, -99},
		{"no such volume", pod(&ten), used, -99},
		{"no emptyDir", pod(&ten, v1.Volume{Name: "v"}), used, -99},
		{"its own limit", pod(nil, volume(&ten, "")), used, 10},
		{"its own limit, nothing known", pod(nil, volume(&ten, "")), nil, 10},
		{"the pod's limit", pod(&twenty, volume(nil, "")), used, 11},
		{"the pod's limit, nothing known", pod(&twenty, volume(nil, "")), nil, -99},
		{"the pod's limit, the rest above it", pod(&twenty, volume(nil, "")), &Usage{EphemeralStorage: 25}, -5},
		{"the smaller of both", pod(&twenty, volume(&ten, "")), used, 10},
		{"the smaller of both, the pod's", pod(&ten, volume(&ten, "")), used, 1},
		{"memory is not the pod's storage", pod(&ten, volume(&twenty, v1.StorageMediumMemory)), used, 20},
	} {
		level, limited := Level(Candidate{Pod: tt.pod, Usage: tt.usage}, "v")
		if limited != (tt.want != -99) || limited && level != tt.want {
			t.Errorf("%s: %d, %v, want %d", tt.name, level, limited, tt.want)
		}
	}
}
