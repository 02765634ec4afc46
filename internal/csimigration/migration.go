// Package csimigration translates volumes of former in-tree drivers into volumes of the CSI drivers
// that replace them: GCE persistent disks, AWS EBS, OpenStack Cinder, Azure disks and files, vSphere
// and Portworx. All functions except [InNamespace] are pure.
//
// Volume handles and attributes are the same as in Kubernetes' translation, so that a driver also
// finds volumes that the in-tree driver provisioned.
package csimigration

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the CSI drivers.
const (
	GCEPD     = "pd.csi.storage.gke.io"
	AWSEBS    = "ebs.csi.aws.com"
	Cinder    = "cinder.csi.openstack.org"
	AzureDisk = "disk.csi.azure.com"
	AzureFile = "file.csi.azure.com"
	VSphere   = "csi.vsphere.vmware.com"
	Portworx  = "pxd.portworx.com"
)

// Plugins returns the names of the translated plugins, sorted, for the annotation
// storage.alpha.kubernetes.io/migrated-plugins of a CSINode.
func Plugins() []string {
	return []string{
		"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
		"kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
	}
}

// Supports reports whether this package translates the source of a pod's volume.
func Supports(s *v1.VolumeSource) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Cinder != nil || s.AzureDisk != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil || s.PortworxVolume != nil
}

// SupportsPersistent reports whether this package translates the source of a
// PersistentVolume.
func SupportsPersistent(s *v1.PersistentVolumeSource) bool {
	return s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Cinder != nil || s.AzureDisk != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil || s.PortworxVolume != nil
}

// ReadOnly reports whether the source of a PersistentVolume is read-only. It returns false for
// sources that this package does not translate.
func ReadOnly(pv *v1.PersistentVolume) bool {
	s := &pv.Spec.PersistentVolumeSource
	switch {
	case s.GCEPersistentDisk != nil:
		return s.GCEPersistentDisk.ReadOnly
	case s.AWSElasticBlockStore != nil:
		return s.AWSElasticBlockStore.ReadOnly
	case s.Cinder != nil:
		return s.Cinder.ReadOnly
	case s.AzureDisk != nil:
		return s.AzureDisk.ReadOnly != nil && *s.AzureDisk.ReadOnly
	case s.AzureFile != nil:
		return s.AzureFile.ReadOnly
	case s.PortworxVolume != nil:
		return s.PortworxVolume.ReadOnly
	}
	return false
}

// PersistentVolume returns a copy of pv with a CSI source in place of its in-tree source.
// It returns pv itself if this package does not translate the source. It fails if the
// source does not identify a volume.
func PersistentVolume(pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	s := &pv.Spec.PersistentVolumeSource
	if !SupportsPersistent(s) {
		return pv, nil
	}
	out := pv.DeepCopy()
	out.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{}
	c := &v1.CSIPersistentVolumeSource{VolumeAttributes: map[string]string{}}
	out.Spec.CSI = c
	var err error
	switch {
	case s.GCEPersistentDisk != nil:
		err = gce(c, s.GCEPersistentDisk, pv.Labels)
		out.Spec.AccessModes = onceInsteadOfMany(pv.Spec.AccessModes)
	case s.AWSElasticBlockStore != nil:
		err = ebs(c, s.AWSElasticBlockStore)
	case s.Cinder != nil:
		c.Driver, c.VolumeHandle, c.FSType, c.ReadOnly = Cinder, s.Cinder.VolumeID, s.Cinder.FSType, s.Cinder.ReadOnly
	case s.AzureDisk != nil:
		azureDisk(c, s.AzureDisk)
	case s.AzureFile != nil:
		f := s.AzureFile
		namespace := v1.NamespaceDefault
		if f.SecretNamespace != nil && *f.SecretNamespace != "" {
			namespace = *f.SecretNamespace
		} else if pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Namespace != "" {
			namespace = pv.Spec.ClaimRef.Namespace
		}
		azureFile(c, f.ShareName, f.SecretName, namespace, pv.Annotations[azureGroup], pv.Name)
		c.ReadOnly = f.ReadOnly
	case s.VsphereVolume != nil:
		vsphere(c, s.VsphereVolume)
	case s.PortworxVolume != nil:
		p := s.PortworxVolume
		c.Driver, c.VolumeHandle, c.FSType, c.ReadOnly = Portworx, p.VolumeID, p.FSType, p.ReadOnly
		if ref := portworxSecret(pv.Annotations); ref != nil {
			c.NodePublishSecretRef, c.ControllerExpandSecretRef, c.NodeExpandSecretRef = ref, ref, ref
		}
	}
	if err == nil && c.VolumeHandle == "" {
		err = errors.New("the volume source does not identify a volume")
	}
	if err != nil {
		return nil, fmt.Errorf("persistent volume %s: %w", pv.Name, err)
	}
	return out, nil
}

// Inline returns a PersistentVolume with a CSI source for an inline volume of a pod, and
// whether the volume is read-only. If this package does not translate the source, pv is
// nil.
func Inline(vol *v1.Volume) (pv *v1.PersistentVolume, readOnly bool, err error) {
	s := &vol.VolumeSource
	if !Supports(s) {
		return nil, false, nil
	}
	pv = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: vol.Name}}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	p := &pv.Spec.PersistentVolumeSource
	p.GCEPersistentDisk, p.AWSElasticBlockStore, p.AzureDisk = s.GCEPersistentDisk, s.AWSElasticBlockStore, s.AzureDisk
	p.VsphereVolume, p.PortworxVolume = s.VsphereVolume, s.PortworxVolume
	if c := s.Cinder; c != nil {
		p.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: c.VolumeID, FSType: c.FSType, ReadOnly: c.ReadOnly}
	}
	if f := s.AzureFile; f != nil {
		p.AzureFile = &v1.AzureFilePersistentVolumeSource{SecretName: f.SecretName, ShareName: f.ShareName, ReadOnly: f.ReadOnly}
		pv.Spec.AccessModes[0] = v1.ReadWriteMany
	}
	readOnly = ReadOnly(pv)
	out, err := PersistentVolume(pv)
	if err != nil {
		return nil, false, fmt.Errorf("volume %s: %w", vol.Name, err)
	}
	return out, readOnly, nil
}

// InNamespace sets the namespace of the secret of an inline Azure file volume: the pod's. It
// changes pv, and does nothing for other volumes.
func InNamespace(pv *v1.PersistentVolume, namespace string) {
	if c := pv.Spec.CSI; c != nil && c.Driver == AzureFile && c.NodeStageSecretRef != nil {
		c.NodeStageSecretRef.Namespace = namespace
		c.VolumeHandle = c.VolumeHandle[:strings.LastIndex(c.VolumeHandle, "#")+1] + namespace
	}
}

// onceInsteadOfMany returns access modes with ReadWriteOnce in place of ReadWriteMany, which GCE
// persistent disks do not support.
func onceInsteadOfMany(modes []v1.PersistentVolumeAccessMode) []v1.PersistentVolumeAccessMode {
	var out []v1.PersistentVolumeAccessMode
	for _, m := range modes {
		if m == v1.ReadWriteMany {
			m = v1.ReadWriteOnce
		}
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// unspecified is the value of an attribute that the driver has to look up.
const unspecified = "UNSPECIFIED"

func gce(c *v1.CSIPersistentVolumeSource, s *v1.GCEPersistentDiskVolumeSource, labels map[string]string) error {
	if s.PDName == "" {
		return errors.New("gcePersistentDisk.pdName is empty")
	}
	place := "zones/" + unspecified
	zone, region := labels[v1.LabelTopologyZone], labels[v1.LabelTopologyRegion]
	if zone == "" {
		zone = labels[v1.LabelFailureDomainBetaZone]
	}
	if region == "" {
		region = labels[v1.LabelFailureDomainBetaRegion]
	}
	switch zones := strings.Split(zone, "__"); {
	case zone == "":
	case len(zones) == 1:
		place = "zones/" + zone
	case region != "":
		place = "regions/" + region
	default: // a region's name is the name of any of its zones without "-" and the letter
		i := strings.LastIndex(zones[0], "-")
		if i <= 0 {
			return fmt.Errorf("label %s is %.100q; want names of zones such as europe-west1-b", v1.LabelTopologyZone, zone)
		}
		place = "regions/" + zones[0][:i]
	}
	c.Driver, c.FSType, c.ReadOnly = GCEPD, s.FSType, s.ReadOnly
	c.VolumeHandle = "projects/" + unspecified + "/" + place + "/disks/" + s.PDName
	partition(c, s.Partition)
	return nil
}

func partition(c *v1.CSIPersistentVolumeSource, n int32) {
	if n > 0 {
		c.VolumeAttributes["partition"] = strconv.Itoa(int(n))
	}
}

// ebsVolume matches a volume ID, alone or in the old forms aws://ZONE/ID and aws:///ID.
var ebsVolume = regexp.MustCompile(`^(aws://[^/]*/)?(vol-[^/]*)$`)

func ebs(c *v1.CSIPersistentVolumeSource, s *v1.AWSElasticBlockStoreVolumeSource) error {
	m := ebsVolume.FindStringSubmatch(s.VolumeID)
	if m == nil {
		return fmt.Errorf("awsElasticBlockStore.volumeID is %.100q; want vol-ID or aws://ZONE/vol-ID", s.VolumeID)
	}
	c.Driver, c.VolumeHandle, c.FSType, c.ReadOnly = AWSEBS, m[2], s.FSType, s.ReadOnly
	partition(c, s.Partition)
	return nil
}

func azureDisk(c *v1.CSIPersistentVolumeSource, s *v1.AzureDiskVolumeSource) {
	c.Driver, c.VolumeHandle = AzureDisk, s.DataDiskURI
	c.VolumeAttributes["kind"] = "Managed"
	if s.Kind != nil {
		c.VolumeAttributes["kind"] = string(*s.Kind)
	}
	if s.CachingMode != nil {
		c.VolumeAttributes["cachingMode"] = string(*s.CachingMode)
	}
	if s.FSType != nil {
		c.FSType, c.VolumeAttributes["fsType"] = *s.FSType, *s.FSType
	}
	c.ReadOnly = s.ReadOnly != nil && *s.ReadOnly
}

// azureGroup is the annotation with the resource group of a file share's storage account.
const azureGroup = "kubernetes.io/azure-file-resource-group"

// azureAccount matches a secret's name that contains the name of a storage account.
var azureAccount = regexp.MustCompile(`^azure-storage-account-(.+)-secret$`)

func azureFile(c *v1.CSIPersistentVolumeSource, share, secret, namespace, group, volume string) {
	account := secret
	if m := azureAccount.FindStringSubmatch(secret); m != nil {
		account = m[1]
	}
	c.Driver = AzureFile
	if share != "" {
		c.VolumeHandle = strings.Join([]string{group, account, share, volume, namespace}, "#")
	}
	c.VolumeAttributes["sharename"] = share
	c.NodeStageSecretRef = &v1.SecretReference{Namespace: namespace, Name: secret}
}

func vsphere(c *v1.CSIPersistentVolumeSource, s *v1.VsphereVirtualDiskVolumeSource) {
	c.Driver, c.VolumeHandle, c.FSType = VSphere, s.VolumePath, s.FSType
	c.VolumeAttributes["initialvolumefilepath"] = s.VolumePath
	if s.StoragePolicyName != "" {
		c.VolumeAttributes["storagepolicyname"] = s.StoragePolicyName
	}
}

// portworxSecret returns the secret that the annotations of a volume refer to, or nil.
func portworxSecret(annotations map[string]string) *v1.SecretReference {
	name, namespace := annotations["openstorage.io/auth-secret-name"], annotations["openstorage.io/auth-secret-namespace"]
	if name == "" || namespace == "" {
		return nil
	}
	return &v1.SecretReference{Namespace: namespace, Name: name}
}
