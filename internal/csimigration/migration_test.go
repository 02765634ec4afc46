package csimigration_test

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/csimigration"
)

func persistent(s v1.PersistentVolumeSource, labels, annotations map[string]string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Labels: labels, Annotations: annotations}}
	pv.Spec.PersistentVolumeSource, pv.Spec.ClaimRef = s, &v1.ObjectReference{Namespace: "shop"}
	return pv
}

func TestOldSourcesBecomeThoseOfTheirDrivers(t *testing.T) {
	zone := func(z string) map[string]string { return map[string]string{v1.LabelTopologyZone: z} }
	shared, readOnlyCache, ext4 := v1.AzureSharedBlobDisk, v1.AzureDataDiskCachingReadOnly, "ext4"
	type want struct {
		driver, handle, fsType, attributes string
		readOnly                           bool
	}
	for name, c := range map[string]struct {
		pv   *v1.PersistentVolume
		want want
	}{
		"gce of a zone": {persistent(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d", FSType: "xfs", Partition: 2, ReadOnly: true}}, zone("europe-west1-b"), nil),
			want{csimigration.GCEPD, "projects/UNSPECIFIED/zones/europe-west1-b/disks/d", "xfs", "partition=2", true}},
		"gce of a region": {persistent(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, zone("europe-west1-b__europe-west1-c"), nil),
			want{csimigration.GCEPD, "projects/UNSPECIFIED/regions/europe-west1/disks/d", "", "", false}},
		"gce of nowhere": {persistent(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, nil, nil),
			want{csimigration.GCEPD, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", "", "", false}},
		"ebs":             {persistent(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", FSType: "ext4", Partition: 1}}, nil, nil), want{csimigration.AWSEBS, "vol-1", "ext4", "partition=1", false}},
		"ebs with a zone": {persistent(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-1a/vol-1"}}, nil, nil), want{csimigration.AWSEBS, "vol-1", "", "", false}},
		"ebs without a zone": {persistent(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws:///vol-1"}}, nil, nil),
			want{csimigration.AWSEBS, "vol-1", "", "", false}},
		"cinder": {persistent(v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "c", FSType: "ext4", ReadOnly: true}}, nil, nil), want{csimigration.Cinder, "c", "ext4", "", true}},
		"azure disk": {persistent(v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "/sub/disk", CachingMode: &readOnlyCache, FSType: &ext4, Kind: &shared}}, nil, nil),
			want{csimigration.AzureDisk, "/sub/disk", "ext4", "cachingMode=ReadOnly fsType=ext4 kind=Shared", false}},
		"azure file": {persistent(v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{SecretName: "azure-storage-account-acc-secret", ShareName: "share"}}, nil, map[string]string{"kubernetes.io/azure-file-resource-group": "rg"}),
			want{csimigration.AzureFile, "rg#acc#share#pv#shop", "", "sharename=share", false}},
		"vsphere": {persistent(v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] a.vmdk", FSType: "ext4", StoragePolicyName: "gold"}}, nil, nil),
			want{csimigration.VSphere, "[ds] a.vmdk", "ext4", "initialvolumefilepath=[ds] a.vmdk storagepolicyname=gold", false}},
		"portworx": {persistent(v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "p", FSType: "xfs"}}, nil, nil), want{csimigration.Portworx, "p", "xfs", "", false}},
	} {
		before := c.pv.DeepCopy()
		got, err := csimigration.PersistentVolume(c.pv)
		if err != nil || !reflect.DeepEqual(before, c.pv) {
			t.Errorf("%s: %v, or the volume was changed", name, err)
			continue
		}
		s := got.Spec.CSI
		if is := (want{s.Driver, s.VolumeHandle, s.FSType, attributes(s.VolumeAttributes), s.ReadOnly}); is != c.want {
			t.Errorf("%s: got %+v, want %+v", name, is, c.want)
		}
		if n := reflect.ValueOf(got.Spec.PersistentVolumeSource); got.Name != "pv" || countSet(n) != 1 {
			t.Errorf("%s: %d sources", name, countSet(n))
		}
	}
}

func countSet(v reflect.Value) (n int) {
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func attributes(m map[string]string) string {
	var out []string
	for _, k := range []string{"cachingMode", "fsType", "initialvolumefilepath", "kind", "partition", "sharename", "storagepolicyname"} {
		if v, ok := m[k]; ok {
			out = append(out, k+"="+v)
		}
	}
	return strings.Join(out, " ")
}

func TestWhatIsNoOldSourceStaysAsItIs(t *testing.T) {
	pv := persistent(v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}, nil, nil)
	if got, err := csimigration.PersistentVolume(pv); got != pv || err != nil {
		t.Errorf("got %v (%v)", got, err)
	}
	if pv, _, err := csimigration.Inline(&v1.Volume{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}); pv != nil || err != nil {
		t.Errorf("got %v (%v)", pv, err)
	}
}

func TestBadOldSourcesAreNamed(t *testing.T) {
	for want, pv := range map[string]*v1.PersistentVolume{
		"volumeID":              persistent(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://x/y/vol-1"}}, nil, nil),
		"pdName":                persistent(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{}}, nil, nil),
		"names of zones":        persistent(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, map[string]string{v1.LabelTopologyZone: "a__b"}, nil),
		"not identify a volume": persistent(v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{}}, nil, nil),
	} {
		if _, err := csimigration.PersistentVolume(pv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestInlineVolumesAreTranslated(t *testing.T) {
	pv, readOnly, err := csimigration.Inline(&v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "c", ReadOnly: true}}})
	if err != nil || !readOnly || pv.Spec.CSI.Driver != csimigration.Cinder || pv.Spec.CSI.VolumeHandle != "c" || pv.Name != "v" {
		t.Errorf("got %+v, %t (%v)", pv, readOnly, err)
	}
	pv, _, err = csimigration.Inline(&v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{SecretName: "acc", ShareName: "s"}}})
	if err != nil {
		t.Fatal(err)
	}
	csimigration.InNamespace(pv, "shop")
	if c := pv.Spec.CSI; c.VolumeHandle != "#acc#s#v#shop" || c.NodeStageSecretRef.Namespace != "shop" {
		t.Errorf("got %+v", c)
	}
	if n := len(csimigration.Plugins()); n != 7 {
		t.Errorf("%d plugins", n)
	}
}

func TestPortworxSecretsComeFromAnnotations(t *testing.T) {
	a := map[string]string{"openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "px"}
	pv, err := csimigration.PersistentVolume(persistent(v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "p"}}, nil, a))
	if err != nil || *pv.Spec.CSI.NodePublishSecretRef != (v1.SecretReference{Namespace: "px", Name: "s"}) {
		t.Errorf("got %+v (%v)", pv, err)
	}
}
