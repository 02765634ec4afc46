package ocispec

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is everything that a container's configuration depends on. Compile does not change it.
// The result shares no memory with it that the caller may change.
type Input struct {
	// ID is the ID of the container, and the last element of its cgroup's path.
	ID        string
	Sandbox   *runtimeapi.PodSandboxConfig
	Container *runtimeapi.ContainerConfig
	Image     Image
	// User is the user of the process, from [ResolveUser].
	User User
	// Rootfs is the path of the root file system on the host.
	Rootfs string
	// Hostname is the host name of the sandbox, as in its UTS namespace and its hostname file.
	Hostname string
	// Namespaces are the paths of the sandbox's namespaces. If a path is "", NamespaceOption
	// decides whether the container uses the host's namespace or gets its own.
	Namespaces Namespaces
	// Files are mounted into every container of the sandbox, unless one of the container's own
	// mounts has the same path.
	Files Files
	// Sources are the host's paths for Container.Mounts, by index.
	Sources []Source
	// Volumes are the image's volumes that stay writable on a read-only root.
	Volumes []Volume
	// Devices are the device nodes for each of Container.Devices, by index.
	Devices [][]Device
	// SeccompProfile is the content of the Localhost profile, if the container uses one.
	SeccompProfile []byte
	Machine        Machine
	Handler        Handler
}

// Image is the part of an image's configuration that a container inherits.
type Image struct {
	Entrypoint, Cmd, Env []string
	WorkingDir           string
}

// Namespaces are paths of existing namespaces, for example /run/netns/x.
type Namespaces struct {
	Network, IPC, UTS, User, PID string
}

// Files are paths on the host.
type Files struct {
	ResolvConf, Hostname, Hosts string
	// Shm is the directory to mount at /dev/shm.
	Shm string
}

// Source is the host's side of a mount.
type Source struct {
	// Path is the mount's source with links resolved. It is "" if the source is not an absolute
	// path, or not in the image.
	Path string
	// Propagation is the propagation of the mount that contains Path: "shared", "slave" or
	// "private".
	Propagation string
}

// Volume is a directory of the root file system that is mounted over itself.
type Volume struct {
	// Path is the volume's path in the container, and Source its path on the host.
	Path, Source string
}

// Device is a device node of the host.
type Device struct {
	// Path is the path of the node in the container.
	Path string
	// Type is "c" or "b".
	Type         string
	Major, Minor int64
	Mode, UID    uint32
	GID          uint32
}

// Machine has the abilities of the host.
type Machine struct {
	// CgroupV2 reports whether the machine uses cgroup v2.
	CgroupV2 bool
	// UserNamespace means that this process is in a user namespace. There, the kernel maps no IDs of
	// mounts, and only the Controllers of cgroup v2 were delegated: values for others are left out.
	UserNamespace bool
	Controllers   []string
	// Systemd reports whether systemd creates the cgroups.
	Systemd bool
	// Swap reports whether swap can be limited.
	Swap bool
	// HugePages are the sizes that the kernel supports, as in the CRI, for example "2MB".
	// HugePagesLimited reports whether they can be limited.
	HugePages        []string
	HugePagesLimited bool
	// Capabilities are all capabilities that the kernel knows, for example "CAP_CHOWN".
	Capabilities []string
	// Devices are all device nodes of the host, for privileged containers.
	Devices []Device
	// AppArmor reports whether the kernel enforces AppArmor. AppArmorProfiles are the loaded
	// profiles. AppArmorDefault is the name of the profile for RuntimeDefault, or "" if
	// RuntimeDefault means no profile.
	AppArmor         bool
	AppArmorProfiles []string
	AppArmorDefault  string
	// Seccomp returns the profile for RuntimeDefault. It is nil if the kernel or the OCI runtime
	// does not support seccomp.
	Seccomp func(*specs.Spec) (*specs.LinuxSeccomp, error)
	// LeastOOMScoreAdj is the lowest oom_score_adj that can be set.
	LeastOOMScoreAdj int64
	// RecursiveReadOnly reports whether the kernel supports recursively read-only mounts (Linux
	// 5.12).
	RecursiveReadOnly bool
}

// Handler has the abilities of the handler's OCI runtime, from its features command.
type Handler struct {
	RecursiveReadOnly, IDMap, NetDevices, IntelRdt bool
	// PrivilegedWithoutHostDevices means that privileged containers do not get the host's
	// devices.
	PrivilegedWithoutHostDevices bool
}

// linux returns the Linux part of the container's configuration. If the request has none, it
// returns an empty one, never nil.
func (in *Input) linux() *runtimeapi.LinuxContainerConfig {
	if l := in.Container.GetLinux(); l != nil {
		return l
	}
	return &runtimeapi.LinuxContainerConfig{}
}

// security returns the container's security context. If the request has none, it returns an empty
// one, never nil.
func (in *Input) security() *runtimeapi.LinuxContainerSecurityContext {
	if s := in.linux().GetSecurityContext(); s != nil {
		return s
	}
	return &runtimeapi.LinuxContainerSecurityContext{}
}

func (in *Input) privileged() bool { return in.security().GetPrivileged() }

// userns returns the options of the sandbox's user namespace, which all containers of a pod
// share.
func (in *Input) userns() *runtimeapi.UserNamespace {
	return in.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
}

func (in *Input) ownUserns() bool {
	return in.userns() != nil && in.userns().GetMode() == runtimeapi.NamespaceMode_POD
}
