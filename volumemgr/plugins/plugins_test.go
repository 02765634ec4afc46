package plugins

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// Exactly one plugin supports each known source.
func TestOnePluginForEachSource(t *testing.T) {
	list, err := New(Config{Mounter: &plugintest.MountMemory{}, Root: "/var/lib/agent"})
	if err != nil {
		t.Fatal(err)
	}
	inline := func(s v1.VolumeSource) *volumemgr.Spec { return &volumemgr.Spec{Volume: &v1.Volume{VolumeSource: s}} }
	persistent := func(s v1.PersistentVolumeSource) *volumemgr.Spec {
		return &volumemgr.Spec{PersistentVolume: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: s}}}
	}
	for want, spec := range map[string]*volumemgr.Spec{
		"kubernetes.io/empty-dir": inline(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), "kubernetes.io/host-path": inline(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}),
		"kubernetes.io/configmap": inline(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}), "kubernetes.io/secret": inline(v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}),
		"kubernetes.io/downward-api": inline(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}), "kubernetes.io/projected": inline(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}),
		"kubernetes.io/image": inline(v1.VolumeSource{Image: &v1.ImageVolumeSource{}}), "kubernetes.io/nfs": persistent(v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}),
		"kubernetes.io/local-volume": persistent(v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{}}), "kubernetes.io/iscsi": inline(v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}), "kubernetes.io/fc": persistent(v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{}}),
		"": inline(v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}),
	} {
		var got []string
		for _, p := range list {
			if p.Supports(spec) {
				got = append(got, p.Name())
			}
		}
		if want == "" && len(got) != 0 || want != "" && !reflect.DeepEqual(got, []string{want}) {
			t.Errorf("%q is supported by %q", want, got)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no mounter, no error")
	}
}

func TestMounter(t *testing.T) {
	memory := &plugintest.MountMemory{}
	m := Mounter(memory)
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(top, "a"), filepath.Join(top, "ab")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Mount(t.Context(), "tmpfs", a, "tmpfs", []string{"size=4k"}); err != nil {
		t.Fatal(err)
	}
	if err := m.Mount(t.Context(), a, b, "", []string{"rbind", "ro", "rslave"}); err != nil {
		t.Fatal(err)
	}
	got, err := m.Mounts(a)
	want := []volumemgr.Mount{{Path: a, Root: "/", Device: "0:0", FSType: "tmpfs", Source: "tmpfs", Options: []string{"rw", "size=4k"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v (%v)", got, err)
	}
	if all, err := m.Mounts("/"); err != nil || len(all) != 2 {
		t.Errorf("%+v (%v)", all, err)
	}
	for _, d := range []string{a, a, b, filepath.Join(top, "none"), filepath.Join(top, "no/parent")} {
		if err := m.Unmount(t.Context(), d); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
	if all, err := m.Mounts("/"); err != nil || len(all) != 0 {
		t.Errorf("%+v (%v)", all, err)
	}
	if err := m.Mount(t.Context(), "tmpfs", a, "tmpfs", []string{"rshared"}); err == nil {
		t.Error("propagation of what is no bind mount")
	}
}
