package volumemgr

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Functions without side effects that read a pod's volumes from its spec.

// use is how the containers of a pod use one of its volumes.
type use struct {
	volume          *v1.Volume
	mounted, mapped bool // named in volumeMounts; named in volumeDevices
	// below is Volume.Below, from all containers.
	below []string
}

// uses returns the volumes that containers of the pod use. As in the kubelet, other volumes are
// not set up, and a missing claim of such a volume does not prevent the pod from starting.
func uses(pod *v1.Pod) []use {
	all := make([]use, len(pod.Spec.Volumes))
	index := make(map[string]*use, len(all))
	for i := range pod.Spec.Volumes {
		all[i].volume = &pod.Spec.Volumes[i]
		index[pod.Spec.Volumes[i].Name] = &all[i]
	}
	eachContainer(pod, func(c *v1.Container) {
		for _, m := range c.VolumeMounts {
			if u := index[m.Name]; u != nil {
				u.mounted = true
				u.below = append(u.below, below(c, m)...)
			}
		}
		for _, d := range c.VolumeDevices {
			if u := index[d.Name]; u != nil {
				u.mapped = true
			}
		}
	})
	return slices.DeleteFunc(all, func(u use) bool { return !u.mounted && !u.mapped })
}

// eachContainer calls do for the init, regular and ephemeral containers, in that order. do must
// not keep the pointer, since for an ephemeral container it points to a copy.
func eachContainer(pod *v1.Pod, do func(*v1.Container)) {
	for i := range pod.Spec.InitContainers {
		do(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		do(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		c := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		do(&c)
	}
}

// below returns the paths, relative to m, at which the container mounts other volumes inside m.
// If one of these paths is inside another one, it is omitted.
func below(c *v1.Container, m v1.VolumeMount) []string {
	if m.SubPath != "" || m.SubPathExpr != "" {
		return nil // which part is mounted is not known yet
	}
	// The path "/" already ends in a slash.
	base := strings.TrimSuffix(path.Clean(m.MountPath), "/") + "/"
	var found []string
	for _, other := range c.VolumeMounts {
		if rel, ok := strings.CutPrefix(path.Clean(other.MountPath), base); ok && rel != "" && other.Name != m.Name {
			found = append(found, rel)
		}
	}
	slices.Sort(found)
	// A path inside another one belongs to the volume that is mounted there.
	return slices.DeleteFunc(slices.Compact(found), func(rel string) bool {
		return slices.ContainsFunc(found, func(outer string) bool { return strings.HasPrefix(rel, outer+"/") })
	})
}

// check returns an error if containers use a block device in volumeMounts, or a file system in
// volumeDevices. The runtime would mount a device as a directory, or return an error that names
// neither field.
func (u use) check(spec *Spec) error {
	switch {
	case u.mounted && u.mapped:
		return fmt.Errorf("volume is in volumeMounts and in volumeDevices; a volume is either a file system or a block device")
	case spec.Block() && u.mounted:
		return fmt.Errorf("persistent volume %q has volumeMode Block and is in volumeMounts; want volumeDevices", spec.Name())
	case !spec.Block() && u.mapped:
		return fmt.Errorf("volume %q is a file system and is in volumeDevices; want volumeMounts", spec.Name())
	}
	return nil
}

// commonUser returns the user of every container of the pod. It returns nil if the containers
// have different users, or if one has none. As in the kubelet, this user owns the files of
// tokens, so that others need not be able to read them.
func commonUser(pod *v1.Pod) *int64 {
	var user *int64
	same := true
	eachContainer(pod, func(c *v1.Container) {
		var own *int64
		if sc := pod.Spec.SecurityContext; sc != nil {
			own = sc.RunAsUser
		}
		if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
			own = sc.RunAsUser
		}
		// A container without a user runs as the user of its image, which is unknown here.
		if own == nil || user != nil && *user != *own {
			same = false
			return
		}
		user = own
	})
	if !same {
		return nil
	}
	return user
}

// sizeLimit returns the limit of a volume on the node's disk, in bytes. It returns 0 if there is no
// limit. The limit is the smaller of the emptyDir's own limit and the pod's limit of ephemeral
// storage. As in package eviction, the pod's limit is the sum over the containers plus the
// overhead.
func sizeLimit(pod *v1.Pod, spec *Spec) int64 {
	vol := spec.Volume
	if vol == nil || vol.ConfigMap == nil && (vol.EmptyDir == nil || vol.EmptyDir.Medium != v1.StorageMediumDefault) {
		return 0
	}
	limit := podmeta.SumOf(pod, v1.ResourceEphemeralStorage, podmeta.LimitsOf)
	if limit > 0 { // the overhead alone is no limit
		limit += pod.Spec.Overhead.StorageEphemeral().Value()
	}
	if e := vol.EmptyDir; e != nil && e.SizeLimit != nil {
		if own := e.SizeLimit.Value(); own > 0 && (limit == 0 || own < limit) {
			limit = own
		}
	}
	return limit
}

// onlyOnePod reports whether only one pod may use a persistent volume (KEP-2485). As the API
// requires, the mode must be the only one.
func onlyOnePod(spec *Spec) bool {
	pv := spec.PersistentVolume
	return pv != nil && len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == v1.ReadWriteOncePod
}

// sourceName returns the name of the field that has the volume's source, for errors.
func sourceName(spec *Spec) string {
	if pv := spec.PersistentVolume; pv != nil {
		if pv.Spec.FlexVolume != nil {
			return "flexVolume"
		}
		return "persistentVolume"
	}
	s := spec.Volume.VolumeSource
	for _, c := range []struct {
		set  bool
		name string
	}{
		{s.EmptyDir != nil, "emptyDir"}, {s.HostPath != nil, "hostPath"}, {s.ConfigMap != nil, "configMap"},
		{s.Secret != nil, "secret"}, {s.Projected != nil, "projected"}, {s.DownwardAPI != nil, "downwardAPI"},
		{s.PersistentVolumeClaim != nil, "persistentVolumeClaim"}, {s.Ephemeral != nil, "ephemeral"},
		{s.Image != nil, "image"}, {s.NFS != nil, "nfs"}, {s.CSI != nil, "csi"}, {s.ISCSI != nil, "iscsi"}, {s.FC != nil, "fc"},
		{s.FlexVolume != nil, "flexVolume"},
	} {
		if c.set {
			return c.name
		}
	}
	return "unknown"
}

// unsupported returns the error for a volume that no plugin supports. For a flexVolume it
// suggests a CSI driver.
func unsupported(spec *Spec) error {
	name := sourceName(spec)
	if name == "flexVolume" {
		return errors.New("flexVolume is not supported: use the CSI driver of the storage instead")
	}
	return fmt.Errorf("no plugin supports volumes of type %s", name)
}
