package plugins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func TestMain(m *testing.M) { os.Exit(plugintest.MainWithMounts(m)) }

type source struct{}

func (source) Get(_ context.Context, kind, _, name string) (*ContentObject, error) {
	return &ContentObject{Version: "1", Data: map[string][]byte{"key": []byte(kind + name)}}, nil
}

// subjects has a volume of every kind that this machine alone can make.
func subjects(t *testing.T) map[string]*volumemgr.Spec {
	t.Helper()
	mode := int32(0o640)
	name := v1.LocalObjectReference{Name: "x"}
	items := []v1.DownwardAPIVolumeFile{{Path: "d/name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	out := map[string]*volumemgr.Spec{
		"local": {PersistentVolume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}},
		}}},
	}
	for kind, src := range map[string]v1.VolumeSource{
		"emptyDir":           {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"emptyDir in memory": {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}},
		"hostPath":           {HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}},
		"configMap":          {ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name, DefaultMode: &mode}},
		"secret":             {Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: &mode}},
		"downwardAPI":        {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: items, DefaultMode: &mode}},
		"projected": {Projected: &v1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []v1.VolumeProjection{
			{Secret: &v1.SecretProjection{LocalObjectReference: name}}, {DownwardAPI: &v1.DownwardAPIProjection{Items: items}},
		}}},
		"image": {Image: &v1.ImageVolumeSource{Reference: "x"}},
	} {
		out[kind] = &volumemgr.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: src}}
	}
	return out
}

// Every plugin keeps the promises of a plugin, with mounts in memory and with
// those of the kernel, as the first owner of the files and as a group.
func TestConform(t *testing.T) {
	for _, real := range []bool{false, true} {
		for kind, spec := range subjects(t) {
			for _, group := range []*int64{nil, new(int64(2000))} {
				t.Run(fmt.Sprintf("%s/kernel=%t/group=%t", kind, real, group != nil), func(t *testing.T) {
					var m mount.Mounter = &plugintest.MountMemory{}
					if real {
						plugintest.RequireMounts(t)
						m = &mount.Kernel{}
					}
					if group != nil && os.Getuid() != 0 {
						t.Skip("only root gives files to any group")
					}
					root, err := filepath.EvalSymlinks(t.TempDir())
					if err != nil {
						t.Fatal(err)
					}
					plugin := func() volumemgr.Plugin {
						list, err := New(Config{Mounter: m, Root: root, Source: source{}})
						if err != nil {
							t.Fatal(err)
						}
						for _, p := range list {
							if p.Supports(spec) {
								return p
							}
						}
						t.Fatal("nobody supports it")
						return nil
					}
					dir := strings.ReplaceAll(plugin().Name(), "/", "~")
					plugintest.Conform(t, plugintest.Subject{
						New:     plugin,
						Mounter: Mounter(m),
						Exists:  func(path string) bool { _, err := os.Lstat(path); return err == nil },
						Volume: volumemgr.Volume{
							Spec: spec, UID: "u", Name: "v", FSGroup: group,
							Pod:      &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}},
							Path:     filepath.Join(root, "pods/u/volumes", dir, "v"),
							StateDir: filepath.Join(root, "pods/u/plugins", dir, "v"),
						},
					})
				})
			}
		}
	}
}
