package ocispec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mounts adds the mounts of every container and the container's own. The mount of a directory
// comes before mounts below that directory.
func (c *compiler) mounts() error {
	in := c.in
	var own []specs.Mount
	for i, m := range in.Container.GetMounts() {
		om, err := c.mount(fmt.Sprintf("mounts[%d]", i), m, in.Sources[i])
		if err != nil {
			return err
		}
		own = append(own, om)
		c.spread(m.GetPropagation())
	}
	covered := func(p string) bool {
		return slices.ContainsFunc(own, func(m specs.Mount) bool { return m.Destination == p })
	}
	var all []specs.Mount
	for _, m := range c.usual() {
		if !covered(m.Destination) {
			all = append(all, m)
		}
	}
	all = append(all, own...)
	slices.SortStableFunc(all, func(a, b specs.Mount) int { return depth(a.Destination) - depth(b.Destination) })
	c.spec.Mounts = all
	return nil
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

// usual returns the mounts of every container.
func (c *compiler) usual() []specs.Mount {
	in := c.in
	access := "ro"
	if in.privileged() {
		access = "rw"
	}
	pty := []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}
	usual := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: pty},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", access}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", access}},
	}
	file := func(destination, source string) {
		if source == "" {
			return
		}
		options := []string{"rbind", "rprivate", "rw"}
		if in.security().GetReadonlyRootfs() {
			options[2] = "ro"
		}
		usual = append(usual, c.mapped(specs.Mount{Destination: destination, Type: "bind", Source: source, Options: options}))
	}
	for _, v := range in.Volumes {
		usual = append(usual, specs.Mount{Destination: v.Path, Type: "bind", Source: v.Source, Options: []string{"rbind", "rprivate", "rw"}})
	}
	file("/etc/hostname", in.Files.Hostname)
	file("/etc/resolv.conf", in.Files.ResolvConf)
	file("/etc/hosts", in.Files.Hosts)
	if in.Files.Shm != "" {
		usual = append(usual, specs.Mount{Destination: "/dev/shm", Type: "bind", Source: in.Files.Shm, Options: []string{"rbind", "rprivate", "rw"}})
	}
	return usual
}

// mapped adds the ID mappings of the pod's user namespace to a mount, so that its files have the
// same owners in the container as on the host.
func (c *compiler) mapped(m specs.Mount) specs.Mount {
	if c.in.ownUserns() {
		m.UIDMappings, m.GIDMappings = c.spec.Linux.UIDMappings, c.spec.Linux.GIDMappings
	}
	return m
}

// mountOptions are the options that a mount may have in addition to its other fields
// (RuntimeFeatures.mount_options of the CRI).
var mountOptions = []string{"noexec", "nodev", "nosuid"}

// mount converts a mount of the CRI request.
func (c *compiler) mount(field string, m *runtimeapi.Mount, src Source) (specs.Mount, error) {
	dest := m.GetContainerPath()
	if dest == "" || strings.ContainsRune(dest, 0) {
		return specs.Mount{}, invalid(field+".container_path", dest, "must be a path")
	}
	dest = path.Join("/", dest)
	if dest == "/" {
		return specs.Mount{}, invalid(field+".container_path", m.GetContainerPath(), "must not be the root")
	}
	if src.Path == "" {
		if m.GetImage().GetImage() != "" {
			return specs.Mount{}, unable(field+".image_sub_path", m.GetImageSubPath(), "is not in image "+quote(m.GetImage().GetImage()))
		}
		return specs.Mount{}, invalid(field+".host_path", m.GetHostPath(), "must be an absolute path")
	}
	propagation, err := propagationOf(field, m, src)
	if err != nil {
		return specs.Mount{}, err
	}
	access := "rw"
	if m.GetReadonly() || m.GetImage().GetImage() != "" {
		access = "ro"
	}
	if m.GetRecursiveReadOnly() {
		switch {
		case !m.GetReadonly():
			return specs.Mount{}, invalid(field+".recursive_read_only", true, "must come with readonly")
		case m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
			return specs.Mount{}, invalid(field+".propagation", m.GetPropagation(), "must be PROPAGATION_PRIVATE beside recursive_read_only")
		case !c.in.Machine.RecursiveReadOnly:
			return specs.Mount{}, unable(field+".recursive_read_only", true, "needs Linux 5.12")
		case !c.in.Handler.RecursiveReadOnly:
			return specs.Mount{}, unable(field+".recursive_read_only", true, "the OCI runtime does not have it")
		}
		access = "rro"
	}
	out := specs.Mount{Destination: dest, Type: "bind", Source: src.Path, Options: []string{"rbind", propagation, access}}
	for i, o := range m.GetMountOptions() {
		if !slices.Contains(mountOptions, o) {
			return specs.Mount{}, invalid(fmt.Sprintf("%s.mount_options[%d]", field, i), o, "must be one of "+strings.Join(mountOptions, ", "))
		}
		out.Options = append(out.Options, o)
	}
	// The kernel cannot map IDs of an image's mount: its layers have the IDs of the pod.
	if len(m.GetUidMappings())+len(m.GetGidMappings()) > 0 && m.GetImage().GetImage() == "" {
		if !c.in.Handler.IDMap {
			return specs.Mount{}, unable(field+".uid_mappings", m.GetContainerPath(), "the OCI runtime has no ID-mapped mounts")
		}
		if len(m.GetUidMappings()) == 0 || len(m.GetGidMappings()) == 0 {
			return specs.Mount{}, invalid(field+".gid_mappings", m.GetContainerPath(), "mappings of users and of groups must come together")
		}
		out.UIDMappings, out.GIDMappings = ociMapping(m.GetUidMappings()), ociMapping(m.GetGidMappings())
	}
	return out, nil
}

// spread sets the propagation of the root to the widest propagation that a mount of the container
// needs. If it were not set, OCI runtimes would disable propagation before they bind any mount:
// runc from the container to the host, and crun in both directions.
func (c *compiler) spread(p runtimeapi.MountPropagation) {
	l := c.spec.Linux
	switch {
	case p == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		l.RootfsPropagation = "rshared"
	case p == runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER && l.RootfsPropagation == "":
		l.RootfsPropagation = "rslave"
	}
}

// propagationOf returns the mount option for the propagation of m. It returns an error if the
// mount's source cannot have that propagation: new mounts appear in a container only if the
// source is on a shared or slave mount.
func propagationOf(field string, m *runtimeapi.Mount, src Source) (string, error) {
	switch p := m.GetPropagation(); p {
	case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return "rprivate", nil
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		if src.Propagation != "shared" && src.Propagation != "slave" {
			return "", unable(field+".host_path", m.GetHostPath(), "is on a mount that is "+src.Propagation+", and must be on a shared or slave one")
		}
		return "rslave", nil
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		if src.Propagation != "shared" {
			return "", unable(field+".host_path", m.GetHostPath(), "is on a mount that is "+src.Propagation+", and must be on a shared one")
		}
		return "rshared", nil
	default:
		return "", invalid(field+".propagation", int32(p), "must be PROPAGATION_PRIVATE, PROPAGATION_HOST_TO_CONTAINER or PROPAGATION_BIDIRECTIONAL")
	}
}
