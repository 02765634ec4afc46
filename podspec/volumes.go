package podspec

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volumeOf is a pod's volume by name, an empty one if it has none such.
// An empty volume is of no kind, so that callers need no nil check; it points
// into the pod.
func volumeOf(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v
		}
	}
	return &v1.Volume{}
}

// readOnlyVolume reports whether nothing of a volume may be written, whatever a
// mount of it asks for: its content is made by the node, or its source says
// so.
func readOnlyVolume(v *v1.Volume) bool {
	switch {
	// The node replaces their content when the objects change: writes of a
	// container would be lost, or mistaken for content.
	case v.ConfigMap != nil, v.Secret != nil, v.Projected != nil, v.DownwardAPI != nil:
		return true
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ReadOnly
	case v.CSI != nil:
		return isTrue(v.CSI.ReadOnly)
	case v.NFS != nil:
		return v.NFS.ReadOnly
	case v.ISCSI != nil:
		return v.ISCSI.ReadOnly
	case v.FC != nil:
		return v.FC.ReadOnly
	default:
		return false
	}
}

// relabelled reports whether the files of a volume may be given the container's
// SELinux label: not those of the node itself, nor those of a server that
// others use as well.
func relabelled(v *v1.Volume) bool { return v.HostPath == nil && v.NFS == nil }

// mapIDs makes the pod's own IDs those of the files of its mounts, in a pod
// that has IDs of its own (idmapped mounts, mount_setattr(2)).
func mapIDs(conf *runtimeapi.ContainerConfig) {
	// Without its own IDs the files of a volume would belong to nobody in the
	// container.
	ns := conf.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	if ns == nil {
		return
	}
	// Copies for each mount: messages must not share what somebody may change.
	copied := func(ids []*runtimeapi.IDMapping) []*runtimeapi.IDMapping {
		out := make([]*runtimeapi.IDMapping, len(ids))
		for i, m := range ids {
			out[i] = &runtimeapi.IDMapping{HostId: m.HostId, ContainerId: m.ContainerId, Length: m.Length}
		}
		return out
	}
	for _, m := range conf.Mounts {
		m.UidMappings, m.GidMappings = copied(ns.Uids), copied(ns.Gids)
	}
}
