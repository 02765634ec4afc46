package podstatus

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

func TestVolumeMounts(t *testing.T) {
	mode := func(m v1.RecursiveReadOnlyMode) *v1.RecursiveReadOnlyMode { return &m }
	enabled, disabled, ifPossible := mode(v1.RecursiveReadOnlyEnabled), mode(v1.RecursiveReadOnlyDisabled), mode(v1.RecursiveReadOnlyIfPossible)
	recursive := observed.Mount{Path: "/d", RecursiveReadOnly: true}
	for _, tc := range []struct {
		name     string
		path     string
		readOnly bool
		mode     *v1.RecursiveReadOnlyMode
		shown    []observed.Mount
		want     string
	}{
		{name: "writable", want: "/d rw"},
		{name: "writable, said so", mode: disabled, want: "/d rw"},
		{name: "read-only", readOnly: true, want: "/d ro Disabled"},
		{name: "not below", readOnly: true, mode: disabled, want: "/d ro Disabled"},
		{name: "below", readOnly: true, mode: enabled, shown: []observed.Mount{recursive}, want: "/d ro Enabled"},
		{name: "below, of a runtime that does not tell", readOnly: true, mode: enabled, want: "/d ro Enabled"},
		{name: "if possible, and it was", readOnly: true, mode: ifPossible, shown: []observed.Mount{recursive}, want: "/d ro Enabled"},
		{name: "if possible, and it was not", readOnly: true, mode: ifPossible, shown: []observed.Mount{{Path: "/e", RecursiveReadOnly: true}}, want: "/d ro Disabled"},
		{name: "a path from nowhere", path: "d", readOnly: true, mode: ifPossible, shown: []observed.Mount{recursive}, want: "d ro Enabled"},
		{name: "image", shown: []observed.Mount{{Path: "/d", ImageRef: "img@sha256:1"}}, want: "/d rw img@sha256:1"},
		{name: "image by name", shown: []observed.Mount{{Path: "/d", ImageRef: "img:1"}}, want: "/d rw"},
		{name: "image of a name that the API does not take", shown: []observed.Mount{{Path: "/d", ImageRef: strings.Repeat("x", 256) + "@sha256:1"}}, want: "/d rw"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			path := "/d"
			if tc.path != "" {
				path = tc.path
			}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
				{Name: "v", MountPath: path, ReadOnly: tc.readOnly, RecursiveReadOnly: tc.mode},
				{Name: "w", MountPath: "/other"},
			}
			o := instance("1", observed.Running, 0, 0)
			o.Mounts = tc.shown
			got := ContainerStatuses(Input{Pod: p, Observed: &observed.Pod{Containers: []observed.Container{o}}}, RegularContainers)[0].VolumeMounts
			if len(got) != 2 || got[0].Name != "v" || got[1].Name != "w" {
				t.Fatalf("mounts %+v, want those of v and w", got)
			}
			m := got[0]
			s := m.MountPath + map[bool]string{true: " ro", false: " rw"}[m.ReadOnly]
			if m.RecursiveReadOnly != nil {
				s += " " + string(*m.RecursiveReadOnly)
			}
			if v := m.VolumeStatus; v != nil {
				s += " " + v.Image.ImageRef
			}
			if s != tc.want {
				t.Errorf("mount %s, want %s", s, tc.want)
			}
		})
	}
	p := podOf(always, nil, "c")
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/d"}}
	if got := ContainerStatuses(Input{Pod: p}, RegularContainers)[0].VolumeMounts; len(got) != 1 || got[0].Name != "v" || got[0].MountPath != "/d" {
		t.Errorf("mounts of a container that is not there: %+v, want that of the spec, as the kubelet has it", got)
	}
}
