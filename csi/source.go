package csi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	csitranslation "k8s.io/csi-translation-lib"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// The description of a volume for its driver, computed from a spec. Nothing here calls a driver
// or reads the disk.

// source is the description of a volume for its driver.
type source struct {
	// handle is the driver's name for the volume. For an inline volume it is computed from the
	// pod's UID and the volume's name.
	driver, handle string
	ephemeral      bool // inline, without a persistent volume
	readOnly       bool
	block          bool
	fsType         string
	attributes     map[string]string // shared, read-only
	// options are the mount options of the persistent volume, and modes its access modes.
	options []string
	modes   []v1.PersistentVolumeAccessMode

	// stage, publish and expand are the Secrets for the three kinds of calls. A reference that is
	// nil or has no name means no Secret.
	stage, publish, expand *v1.SecretReference
}

// sourceOf returns the source in a spec. Volumes of former in-tree drivers are translated to
// their CSI drivers. If pod is nil, an inline volume has no Secret. After an error the source may
// be incomplete. An error is permanent until the objects change.
func sourceOf(s *volumemgr.Spec, pod *v1.Pod, uid types.UID) (source, error) {
	s, err := translated(s, pod)
	if err != nil {
		return source{}, err
	}
	var src source
	switch pv := s.PersistentVolume; {
	case pv != nil && pv.Spec.CSI != nil:
		c := pv.Spec.CSI
		src = source{
			driver: c.Driver, handle: c.VolumeHandle, readOnly: s.ReadOnly || c.ReadOnly, block: s.Block(), fsType: c.FSType,
			attributes: c.VolumeAttributes, options: mount.Join(mount.OptionsOf(pv.Annotations, pv.Spec.MountOptions)), modes: pv.Spec.AccessModes,
			stage: c.NodeStageSecretRef, publish: c.NodePublishSecretRef, expand: c.NodeExpandSecretRef,
		}
	case s.Volume != nil && s.Volume.CSI != nil:
		c := s.Volume.CSI
		src = source{
			driver: c.Driver, handle: ephemeralHandle(string(uid), s.Volume.Name), ephemeral: true, attributes: c.VolumeAttributes,
			readOnly: c.ReadOnly != nil && *c.ReadOnly,
		}
		if c.FSType != nil {
			src.fsType = *c.FSType
		}
		// A pod can name only Secrets in its own namespace.
		if r := c.NodePublishSecretRef; r != nil && pod != nil {
			src.publish = &v1.SecretReference{Namespace: pod.Namespace, Name: r.Name}
		}
	default:
		return src, errors.New("the volume has no csi source")
	}
	// Both become parts of paths or requests, and the objects are not trusted.
	err = errors.Join(checkDriver(src.driver), checkHandle(src.handle))
	if n := size(src.attributes); n > maxContext {
		err = errors.Join(err, fmt.Errorf("volumeAttributes have %d bytes; want at most %d", n, maxContext))
	}
	return src, err
}

// inTree translates volumes of former in-tree drivers to those of the CSI drivers that replace them.
var inTree = csitranslation.New()

// translated returns s with a CSI source if it has the source of a former in-tree driver, and
// otherwise s itself. Objects are shared and not modified. An inline volume of a former in-tree
// driver becomes a persistent volume without a claim.
func translated(s *volumemgr.Spec, pod *v1.Pod) (*volumemgr.Spec, error) {
	switch {
	case inTree.IsPVMigratable(s.PersistentVolume):
		pv, err := inTree.TranslateInTreePVToCSI(logr.Discard(), s.PersistentVolume)
		if err != nil {
			return s, fmt.Errorf("persistent volume %s: %w", s.PersistentVolume.Name, err)
		}
		return &volumemgr.Spec{PersistentVolume: pv, ReadOnly: s.ReadOnly}, nil
	case inTree.IsInlineMigratable(s.Volume):
		namespace := ""
		if pod != nil {
			namespace = pod.Namespace
		}
		pv, err := inTree.TranslateInTreeInlineVolumeToCSI(logr.Discard(), s.Volume, namespace)
		if err != nil {
			return s, fmt.Errorf("volume %s: %w", s.Volume.Name, err)
		}
		return &volumemgr.Spec{PersistentVolume: pv}, nil
	}
	return s, nil
}

// maxContext limits the bytes of a volume's maps that drivers get. The CSI specification allows 4
// KiB for each, but not all drivers respect that.
const maxContext = 256 << 10

// size returns the length of all keys and values, in bytes.
func size(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// accessMode returns the access mode to request from a driver. It is the widest of modes, since
// the pod may use any of them, or ReadWriteOnce if modes is empty. The modes SINGLE_NODE_*_WRITER
// require the capability SINGLE_NODE_MULTI_WRITER.
func accessMode(modes []v1.PersistentVolumeAccessMode, multiWriter bool) spec.VolumeCapability_AccessMode_Mode {
	// ReadWriteOnce restricts nodes, not pods: several pods of the node may write.
	has := func(m v1.PersistentVolumeAccessMode) bool { return slices.Contains(modes, m) }
	switch {
	case has(v1.ReadWriteMany):
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case has(v1.ReadWriteOnce) || len(modes) == 0:
		if multiWriter {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case has(v1.ReadOnlyMany):
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case has(v1.ReadWriteOncePod) && multiWriter:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	default:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
}

// capability returns the volume capability for requests. group is the group that the driver mounts
// with, or "" if it cannot mount with one. context is the SELinux context of the mount; "" means
// none. The capability of a block device has neither a file system type nor mount options.
func (s source) capability(can abilities, group, context string) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: accessMode(s.modes, can.multiWriter)}}
	if s.block {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		return c
	}
	// The options are shared, so the context is appended to a copy.
	flags := s.options
	if context != "" {
		flags = append(slices.Clone(flags), fmt.Sprintf("context=%q", context))
	}
	c.AccessType = &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{
		FsType: s.fsType, MountFlags: flags, VolumeMountGroup: group,
	}}
	return c
}

// mayPublish returns an error if the driver's volumeLifecycleModes do not include the mode of the
// volume. Users write the attributes of inline volumes. A driver that does not support inline
// volumes could trust them as if an administrator had written them.
func mayPublish(s source, o plugins.CSIDriver) error {
	kind, may := lifecyclePersistent, o.Persistent
	if s.ephemeral {
		kind, may = lifecycleEphemeral, o.Ephemeral
	}
	if may {
		return nil
	}
	return fmt.Errorf("driver %s does not support %s volumes: volumeLifecycleModes of its CSIDriver lacks %s", s.driver, strings.ToLower(kind), kind)
}

// ownsFiles reports whether the agent has to change the files of a volume to the pod's fsGroup;
// the rules are the kubelet's. Volumes that several nodes may write are changed only with the
// policy File.
func ownsFiles(s source, policy plugins.FSGroupPolicy, group *int64) bool {
	switch {
	case group == nil || s.readOnly || s.block:
		return false
	case policy == plugins.FSGroupFile:
		return true
	// Without a file system type, the volume may have no file owners at all.
	case policy == plugins.FSGroupNone || s.fsType == "":
		return false
	case s.ephemeral:
		return true
	}
	return slices.Contains(s.modes, v1.ReadWriteOnce) || slices.Contains(s.modes, v1.ReadWriteOncePod)
}

// Keys that are added to a volume's context. Kubernetes' drivers expect these names.
const (
	keyPodName        = "csi.storage.k8s.io/pod.name"
	keyPodNamespace   = "csi.storage.k8s.io/pod.namespace"
	keyPodUID         = "csi.storage.k8s.io/pod.uid"
	keyServiceAccount = "csi.storage.k8s.io/serviceAccount.name"
	keyEphemeral      = "csi.storage.k8s.io/ephemeral"
	keyTokens         = "csi.storage.k8s.io/serviceAccount.tokens"
)

// volumeContext returns the volume context for a driver in a map that the caller owns; attributes
// are shared with API objects. Keys about the pod override attributes with the same name, so that
// a volume cannot claim to belong to another pod.
func volumeContext(s source, pod *v1.Pod, podInfo bool) map[string]string {
	out := make(map[string]string, len(s.attributes)+6)
	for k, v := range s.attributes {
		out[k] = v
	}
	if podInfo && pod != nil {
		out[keyPodName], out[keyPodNamespace], out[keyPodUID] = pod.Name, pod.Namespace, string(pod.UID)
		out[keyServiceAccount] = pod.Spec.ServiceAccountName
		out[keyEphemeral] = fmt.Sprint(s.ephemeral)
	}
	return out
}
