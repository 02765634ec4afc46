package podspec

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volumeOf returns a pod's volume by name. If there is none, it returns a volume without a
// source, so that callers need no nil check.
func volumeOf(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v
		}
	}
	return &v1.Volume{}
}

// readOnlyVolume reports whether a volume is read-only for all mounts: because the node writes
// its content, or because its source is read-only.
func readOnlyVolume(v *v1.Volume) bool {
	switch {
	// The node rewrites the content of these volumes when their objects change, so a container's
	// writes would be lost.
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

// relabelled reports whether the files of a volume may be relabelled with the container's SELinux
// label. hostPath and NFS volumes may not, since others use the files too.
func relabelled(v *v1.Volume) bool { return v.HostPath == nil && v.NFS == nil }

// mapIDs sets ID mappings on all mounts of a pod with a user namespace, so that files have the
// pod's IDs (idmapped mounts, mount_setattr(2)).
func mapIDs(conf *runtimeapi.ContainerConfig) {
	// Without mappings, the files would belong to the overflow user (nobody) in the container.
	ns := conf.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	if ns == nil {
		return
	}
	// Each mount gets its own copies of the messages.
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
