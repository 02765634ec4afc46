package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	agentcsi "github.com/nodewright/nodewright/agent/csi"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/csi"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/nodeagent"
)

// What a cluster has of volumes of drivers: the objects of claims, and the controller that
// attaches what a Node says to be in use.

// drivers makes the part of a whole node for volumes of drivers, as nodeagent/csi does, with the
// mounts and the driver of the machine.
func (l *life) drivers(b *nodeagent.Builder) (part.Part, error) {
	s := l.m.storage
	if s == nil {
		return nil, nil //nolint:nilnil // no pod has one
	}
	p, err := agentcsi.New(agentcsi.Config{
		CSI: csi.Config{
			Root: l.m.root(), NodeName: nodeName, Mounter: mounter{l}, Cluster: b.Cluster.Storage, InUse: b.Facts.Changed, Dial: s.dial,
		},
		Claims: b.Cluster.Claims,
	})
	if err != nil {
		return nil, err
	}
	f := b.Facts
	f.VolumePlugins = append(f.VolumePlugins, p.Plugin())
	f.StorageReady, f.Attached = p.Manager().Ready, p.Manager().VolumesInUse
	l.csi = p
	return p, nil
}

// uniqueName is how a Node names the volume of a claim.
func uniqueName(claim string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/csi/" + csiName + "^" + claim)
}

// attachmentName is the name that the controllers of a cluster give the attachment of a volume.
func attachmentName(claim string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(claim+csiName+nodeName)))
}

// claims are those that pods may have volumes of, each with the volume of its name.
var claims = []string{"a", "b"}

// objects has the API server have the driver, the claims and their volumes.
func (s *storage) objects(a *api) {
	yes, fsGroup := true, storagev1.NoneFSGroupPolicy
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiName}}
	d.Spec.AttachRequired, d.Spec.PodInfoOnMount, d.Spec.FSGroupPolicy = &yes, &yes, &fsGroup
	d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	a.server.Create(d)
	for _, name := range claims {
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: csiName, VolumeHandle: name}
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
		c.Spec.VolumeName = pv.Name
		c.UID = types.UID("claim-" + name)
		pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: name, UID: c.UID}
		a.server.Create(c)
		a.server.Create(pv)
	}
}

// attach is what the controller does when the Node or where a volume is has changed: what the Node
// says to be in use is attached, unless it is elsewhere. machine.mu is held.
func (s *storage) attach() {
	if s == nil || s.m.api == nil {
		return
	}
	server := s.m.api.server
	n, _ := server.Get(&v1.Node{}, "", nodeName).(*v1.Node)
	if n == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []v1.AttachedVolume
	for _, name := range claims {
		attached := slices.ContainsFunc(n.Status.VolumesAttached, func(v v1.AttachedVolume) bool { return v.Name == uniqueName(name) })
		if s.away[name] || !attached && !slices.Contains(n.Status.VolumesInUse, uniqueName(name)) {
			server.Remove(kubeapi.VolumeAttachments, "", attachmentName(name))
			continue
		}
		list = append(list, v1.AttachedVolume{Name: uniqueName(name)})
		if server.Get(&storagev1.VolumeAttachment{}, "", attachmentName(name)) == nil {
			server.Create(&storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: attachmentName(name)}, Spec: storagev1.VolumeAttachmentSpec{Attacher: csiName, NodeName: nodeName},
				Status: storagev1.VolumeAttachmentStatus{Attached: true},
			})
		}
	}
	if !slices.Equal(list, n.Status.VolumesAttached) {
		server.Edit(&v1.Node{}, "", nodeName, func(o runtime.Object) { o.(*v1.Node).Status.VolumesAttached = list })
	}
}

// inUse reports whether a controller may not take a volume away: the machine has it, or its Node
// says so.
func (m *machine) inUse(l *life, name string) bool {
	if m.storage.driver.Staged()[name] != "" {
		return true
	}
	if m.api != nil {
		n, _ := m.api.server.Get(&v1.Node{}, "", nodeName).(*v1.Node)
		return n == nil || slices.Contains(n.Status.VolumesInUse, uniqueName(name))
	}
	return l == nil || slices.Contains(l.csi.Manager().VolumesInUse(), uniqueName(name))
}
