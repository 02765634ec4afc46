package podspec

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How a volume is mounted depends on its type, for any mount of it.
func TestMountOfAVolume(t *testing.T) {
	for _, tc := range []struct {
		volume            string
		readOnly, relabel bool
	}{
		{"emptyDir: {}", false, true},
		{"configMap: {name: c}", true, true},
		{"secret: {secretName: s}", true, true},
		{"projected: {sources: []}", true, true},
		{"downwardAPI: {items: []}", true, true},
		{"ephemeral: {}", false, true},
		{"persistentVolumeClaim: {claimName: c}", false, true},
		{"persistentVolumeClaim: {claimName: c, readOnly: true}", true, true},
		{"csi: {driver: d}", false, true},
		{"csi: {driver: d, readOnly: true}", true, true},
		{"iscsi: {targetPortal: p, iqn: q, lun: 0}", false, true},
		{"iscsi: {targetPortal: p, iqn: q, lun: 0, readOnly: true}", true, true},
		{"fc: {}", false, true},
		{"fc: {readOnly: true}", true, true},
		{"hostPath: {path: /etc}", false, false}, // the node's own files keep their labels
		{"nfs: {server: s, path: /p}", false, false},
		{"nfs: {server: s, path: /p, readOnly: true}", true, false},
	} {
		in := input(t, "{volumes: [{name: v, "+tc.volume+"}], containers: [{name: app, image: i, volumeMounts: [{name: v, mountPath: /d}, {name: v, mountPath: /e, readOnly: true}], volumeDevices: [{name: v, devicePath: /dev/x}]}]}")
		in.Volumes = map[string]string{"v": "/vol/v"}
		c := compile(t, in, "app")
		if m := c.Mounts[0]; m.Readonly != tc.readOnly || m.SelinuxRelabel != tc.relabel {
			t.Errorf("%s: read-only %t, relabelled %t; want %t, %t", tc.volume, m.Readonly, m.SelinuxRelabel, tc.readOnly, tc.relabel)
		}
		if !c.Mounts[1].Readonly {
			t.Errorf("%s: readOnly is writable", tc.volume)
		}
		access := map[bool]string{false: "mrw", true: "r"}[tc.readOnly]
		if got := c.Devices[0].Permissions; got != access {
			t.Errorf("%s: device %s, want %s", tc.volume, got, access)
		}
	}
}

func TestImageVolumes(t *testing.T) {
	in := mounting(t, "{name: pics, mountPath: /d, subPath: jpg}")
	in.RuntimeHandler, in.ImageRefs = "kata", map[string]string{"pics": "registry/pics@sha256:1"}
	m := compile(t, in, "app").Mounts[0]
	if i := m.Image; i.Image != "registry/pics@sha256:1" || i.UserSpecifiedImage != "registry/pics:1" || i.RuntimeHandler != "kata" {
		t.Errorf("image = %v, want the one that was pulled", i)
	}
	if m.HostPath != "" || m.ImageSubPath != "jpg" || !m.Readonly {
		t.Errorf("mount = %v", m)
	}
}

// In a pod with a user namespace, files written by the node or the pod appear with their intended
// owners.
func TestMountsInAUserNamespace(t *testing.T) {
	in := mounting(t, "{name: data, mountPath: /d}, {name: pics, mountPath: /p}")
	in.PodIPs = []string{"10.1.0.7"}
	in.Attached = map[string]Attachment{"app": {Mounts: []*runtimeapi.Mount{{ContainerPath: "/lib/gpu", HostPath: "/opt/gpu"}}}}
	for _, m := range compile(t, in, "app").Mounts {
		if len(m.UidMappings)+len(m.GidMappings) > 0 {
			t.Errorf("%s: IDs are mapped in the node's own user namespace", m.ContainerPath)
		}
	}
	own := false
	in.Pod.Spec.HostUsers, in.Handler.UserNamespaces, in.UserNamespace = &own, true, &IDRange{First: 131072, Length: 65536}
	mounts := compile(t, in, "app").Mounts
	if len(mounts) != 4 {
		t.Fatalf("%d mounts, want the two volumes, the hosts file and the plugin's", len(mounts))
	}
	for _, m := range mounts {
		for _, ids := range [][]*runtimeapi.IDMapping{m.UidMappings, m.GidMappings} {
			if len(ids) != 1 || ids[0].HostId != 131072 || ids[0].ContainerId != 0 || ids[0].Length != 65536 {
				t.Errorf("%s: IDs %v, want the pod's", m.ContainerPath, ids)
			}
		}
	}
	if in.Attached["app"].Mounts[0].UidMappings != nil {
		t.Error("the input was changed")
	}
}
