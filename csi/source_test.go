package csi

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"
)

// A volume of a former in-tree driver is one of the CSI driver that replaces it, and the shared
// object is not changed.
func TestFormerInTreeVolumes(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	persistent := func(s v1.PersistentVolumeSource) *volumemgr.Spec {
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: map[string]string{v1.LabelTopologyZone: "europe-west1-b"}}}
		pv.Spec.PersistentVolumeSource, pv.Spec.ClaimRef = s, &v1.ObjectReference{Namespace: "shop"}
		return &volumemgr.Spec{PersistentVolume: pv}
	}
	inline := func(s v1.VolumeSource) *volumemgr.Spec {
		return &volumemgr.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: s}}
	}
	for name, c := range map[string]struct {
		spec           *volumemgr.Spec
		driver, handle string
		readOnly       bool
	}{
		"gce": {persistent(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: true}}),
			"pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/europe-west1-b/disks/d", true},
		"azure file": {persistent(v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{SecretName: "acc", ShareName: "s"}}),
			"file.csi.azure.com", "#acc#s#pv#shop", false},
		"inline cinder": {inline(v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "c", ReadOnly: true}}),
			"cinder.csi.openstack.org", "c", true},
		"inline azure file": {inline(v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{SecretName: "acc", ShareName: "s"}}),
			"file.csi.azure.com", "#acc#s#v#shop", false},
	} {
		before := &volumemgr.Spec{Volume: c.spec.Volume.DeepCopy(), PersistentVolume: c.spec.PersistentVolume.DeepCopy()}
		src, err := sourceOf(c.spec, pod, "uid")
		if err != nil || src.driver != c.driver || src.handle != c.handle || src.readOnly != c.readOnly {
			t.Errorf("%s: got %+v (%v)", name, src, err)
		}
		if !(Plugin{}).Supports(c.spec) || !reflect.DeepEqual(before, c.spec) {
			t.Errorf("%s: not supported, or the object was changed", name)
		}
	}
	for want, spec := range map[string]*volumemgr.Spec{
		"persistent volume pv: ": persistent(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://x/y/vol-1"}}),
		"volumeHandle":           persistent(v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{}}),
		"no csi source":          inline(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
	} {
		if _, err := sourceOf(spec, pod, "uid"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
