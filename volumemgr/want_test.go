package volumemgr

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func podVolume(name string, source v1.VolumeSource) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: source}
}

var dir = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}

// Volumes count if a container of any kind uses them.
func TestUses(t *testing.T) {
	mount := func(name string) []v1.VolumeMount { return []v1.VolumeMount{{Name: name, MountPath: "/" + name}} }
	pod := &v1.Pod{Spec: v1.PodSpec{
		Volumes:        []v1.Volume{podVolume("unused", dir), podVolume("init", dir), podVolume("app", dir), podVolume("debug", dir), podVolume("raw", dir)},
		InitContainers: []v1.Container{{VolumeMounts: mount("init")}},
		Containers:     []v1.Container{{VolumeMounts: mount("app"), VolumeDevices: []v1.VolumeDevice{{Name: "raw"}}}, {VolumeMounts: mount("missing")}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			VolumeMounts: mount("debug"),
		}}},
	}}
	var got []string
	for _, u := range uses(pod) {
		got = append(got, u.volume.Name)
		if u.mapped != (u.volume.Name == "raw") || u.mounted == u.mapped {
			t.Errorf("%s: mounted = %v, mapped = %v", u.volume.Name, u.mounted, u.mapped)
		}
	}
	if want := []string{"init", "app", "debug", "raw"}; !slices.Equal(got, want) {
		t.Errorf("uses = %v, want %v", got, want)
	}
	if got := uses(&v1.Pod{}); len(got) > 0 {
		t.Errorf("uses of an empty pod = %v", got)
	}
}

func TestBelow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mounts []v1.VolumeMount // the first is asked for
		want   []string
	}{
		{"alone", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}}, nil},
		{"beside", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}, {Name: "b", MountPath: "/etcetera"}}, nil},
		{"below", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}, {Name: "b", MountPath: "/etc/conf"}}, []string{"conf"}},
		{"slashes", []v1.VolumeMount{{Name: "a", MountPath: "/etc/"}, {Name: "b", MountPath: "/etc//conf/"}}, []string{"conf"}},
		{"deep", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}, {Name: "b", MountPath: "/etc/x/y"}}, []string{"x/y"}},
		{"only the first level", []v1.VolumeMount{
			{Name: "a", MountPath: "/etc"}, {Name: "b", MountPath: "/etc/x"}, {Name: "c", MountPath: "/etc/x/y"}, {Name: "d", MountPath: "/etc/xy"},
		}, []string{"x", "xy"}},
		{"the root", []v1.VolumeMount{{Name: "a", MountPath: "/"}, {Name: "b", MountPath: "/x"}}, []string{"x"}},
		{"above", []v1.VolumeMount{{Name: "a", MountPath: "/etc/x"}, {Name: "b", MountPath: "/etc"}}, nil},
		{"itself", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}, {Name: "a", MountPath: "/etc/x"}}, nil},
		{"twice", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}, {Name: "b", MountPath: "/etc/x"}, {Name: "c", MountPath: "/etc/x"}}, []string{"x"}},
		{"with a subPath", []v1.VolumeMount{{Name: "a", MountPath: "/etc", SubPath: "s"}, {Name: "b", MountPath: "/etc/x"}}, nil},
		{"dots that lead out", []v1.VolumeMount{{Name: "a", MountPath: "/etc"}, {Name: "b", MountPath: "/etc/../x"}}, nil},
	} {
		c := &v1.Container{VolumeMounts: tc.mounts}
		if got := below(c, tc.mounts[0]); !slices.Equal(got, tc.want) {
			t.Errorf("%s: below = %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestCommonUser(t *testing.T) {
	user := func(id int64) *int64 { return &id }
	security := func(id *int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: id} }
	for _, tc := range []struct {
		name string
		pod  *int64
		own  []*v1.SecurityContext
		want *int64
	}{
		{"nobody says", nil, []*v1.SecurityContext{nil, nil}, nil},
		{"the pod says", user(7), []*v1.SecurityContext{nil, security(nil)}, user(7)},
		{"all containers say", nil, []*v1.SecurityContext{security(user(7)), security(user(7))}, user(7)},
		{"one does not", nil, []*v1.SecurityContext{security(user(7)), nil}, nil},
		{"one differs", user(7), []*v1.SecurityContext{nil, security(user(8))}, nil},
		{"the pod is overruled by all", user(7), []*v1.SecurityContext{security(user(8))}, user(8)},
		{"root is a user", user(0), []*v1.SecurityContext{nil}, user(0)},
	} {
		pod := &v1.Pod{}
		if tc.pod != nil {
			pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: tc.pod}
		}
		for _, sc := range tc.own {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{SecurityContext: sc})
		}
		got := commonUser(pod)
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestSizeLimit(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	limits := func(q string) v1.ResourceRequirements {
		if q == "" {
			return v1.ResourceRequirements{}
		}
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(q)}}
	}
	emptyDir := func(medium v1.StorageMedium, limit string) *Spec {
		e := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			q := resource.MustParse(limit)
			e.SizeLimit = &q
		}
		return &Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{EmptyDir: e}}}
	}
	config := &Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}
	const gi = 1 << 30
	for _, tc := range []struct {
		name             string
		containers, init []string // init run after the sidecar
		sidecar          string
		overhead         string
		spec             *Spec
		want             int64
	}{
		{name: "the pod's", containers: []string{"1Gi"}, spec: emptyDir("", ""), want: gi},
		{name: "its own is smaller", containers: []string{"1Gi"}, spec: emptyDir("", "512Mi"), want: gi / 2},
		{name: "its own is larger", containers: []string{"1Gi"}, spec: emptyDir("", "2Gi"), want: gi},
		{name: "its own alone", containers: []string{""}, spec: emptyDir("", "2Gi"), want: 2 * gi},
		{name: "an own limit of 0 is none", containers: []string{"1Gi"}, spec: emptyDir("", "0"), want: gi},
		{name: "none", containers: []string{""}, spec: emptyDir("", "")},
		{name: "in memory", containers: []string{"1Gi"}, spec: emptyDir(v1.StorageMediumMemory, "1Gi")},
		{name: "containers add up", containers: []string{"1Gi", "1Gi"}, spec: emptyDir("", ""), want: 2 * gi},
		{name: "init containers do not", containers: []string{"1Gi"}, init: []string{"3Gi", "1Gi"}, spec: emptyDir("", ""), want: 3 * gi},
		{name: "sidecars do", containers: []string{"1Gi"}, sidecar: "1Gi", spec: emptyDir("", ""), want: 2 * gi},
		{name: "beside an init container too", containers: []string{"1Gi"}, init: []string{"10Gi"}, sidecar: "2Gi", spec: emptyDir("", ""), want: 12 * gi},
		{name: "with the overhead", containers: []string{"1Gi"}, overhead: "1Gi", spec: emptyDir("", ""), want: 2 * gi},
		{name: "overhead alone", containers: []string{""}, overhead: "1Gi", spec: emptyDir("", "")},
		{name: "a ConfigMap", containers: []string{"1Gi"}, spec: config, want: gi},
		{name: "hostPath", containers: []string{"1Gi"}, spec: &Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}}},
		{name: "a persistent volume", containers: []string{"1Gi"}, spec: &Spec{PersistentVolume: &v1.PersistentVolume{}}},
	} {
		pod := &v1.Pod{}
		for _, q := range tc.containers {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: limits(q)})
		}
		if tc.sidecar != "" {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Resources: limits(tc.sidecar), RestartPolicy: &always})
		}
		for _, q := range tc.init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Resources: limits(q)})
		}
		if tc.overhead != "" {
			pod.Spec.Overhead = limits(tc.overhead).Limits
		}
		if got := sizeLimit(pod, tc.spec); got != tc.want {
			t.Errorf("%s: sizeLimit = %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Names of plugins are found again from the names of their directories.
func TestEscape(t *testing.T) {
	if got := escape("kubernetes.io/empty-dir"); got != "kubernetes.io~empty-dir" || unescape(got) != "kubernetes.io/empty-dir" {
		t.Errorf("escape = %q, unescape = %q", got, unescape(got))
	}
	for _, s := range []string{"", ".", "..", "a/b", "a\x00", string(make([]byte, 256))} {
		if plain(s) {
			t.Errorf("plain(%q) = true", s)
		}
	}
}

// flexVolume has a successor, and who still uses it is told.
func TestFlexVolumeIsRefusedWithAWordOnCSI(t *testing.T) {
	for name, spec := range map[string]*Spec{
		"inline":     {Volume: &v1.Volume{VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}}}},
		"persistent": {PersistentVolume: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{}}}}},
	} {
		if err := unsupported(spec); !strings.Contains(err.Error(), "CSI") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := unsupported(&Spec{Volume: &v1.Volume{VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}}}); !strings.Contains(err.Error(), "of type csi") {
		t.Error(err)
	}
}
