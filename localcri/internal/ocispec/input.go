package ocispec

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is all that a container's configuration depends on. Compile changes
// nothing in it, and the configuration shares no memory with it that either may
// change.
type Input struct {
	// ID is the container's, the last element of its cgroup's path.
	ID        string
	Sandbox   *runtimeapi.PodSandboxConfig
	Container *runtimeapi.ContainerConfig
	Image     Image
	// User is whom the process runs as, from [ResolveUser].
	User User
	// Rootfs is the path of the root file system on the host.
	Rootfs string
	// Hostname is the sandbox's, as it is in its UTS namespace and file.
	Hostname string
	// Namespaces are the paths of the sandbox's namespaces. Where one is "", the
	// namespace is the host's or the container's own, as NamespaceOption says.
	Namespaces Namespaces
	// Files are what every container of the sandbox gets unless a mount of its
	// own covers it.
	Files Files
	// Sources are what was found at the host's side of each of Container.Mounts,
	// by index.
	Sources []Source
	// Volumes are the image's that stay writable though the root is read-only.
	Volumes []Volume
	// Devices are what was found of each of Container.Devices, by index.
	Devices [][]Device
	// SeccompProfile is the content of the localhost profile's file, if the
	// container asks for one.
	SeccompProfile []byte
	Machine        Machine
	Handler        Handler
}

// Image is the part of an image's configuration that a container inherits.
type Image struct {
	Entrypoint, Cmd, Env []string
	WorkingDir           string
}

// Namespaces are paths of namespaces that exist, such as /run/netns/x.
type Namespaces struct {
	Network, IPC, UTS, User, PID string
}

// Files are paths on the host.
type Files struct {
	ResolvConf, Hostname, Hosts string
	// Shm is the directory of the sandbox's /dev/shm.
	Shm string
}

// Source is what a mount leads to on the host.
type Source struct {
	// Path is the mount's source with its links followed; "" if it is no absolute
	// path, or not in the image.
	Path string
	// Propagation is that of the mount at Path: "shared", "slave" or "private".
	Propagation string
}

// Volume is a directory of the root file system that is mounted over itself.
type Volume struct {
	// Path is where it is in the container, Source where it is on the host.
	Path, Source string
}

// Device is a device node of the host.
type Device struct {
	// Path is where the node is in the container.
	Path string
	// Type is "c" or "b".
	Type         string
	Major, Minor int64
	Mode, UID    uint32
	GID          uint32
}

// Machine is what the host can do.
type Machine struct {
	// CgroupV2 reports whether cgroups are the unified hierarchy.
	CgroupV2 bool
	// Systemd reports whether systemd makes the cgroups.
	Systemd bool
	// Swap reports whether swap can be limited.
	Swap bool
	// HugePages are the sizes that the kernel has, as the CRI spells them, such
	// as "2MB". HugePagesLimited reports whether they can be limited.
	HugePages        []string
	HugePagesLimited bool
	// Capabilities are all that the kernel knows, such as "CAP_CHOWN".
	Capabilities []string
	// Devices are all device nodes of the host, for privileged containers.
	Devices []Device
	// AppArmor reports whether the kernel enforces AppArmor, AppArmorProfiles
	// are the profiles that are loaded, and AppArmorDefault is the name of the
	// one that stands for RuntimeDefault; "" if there is none.
	AppArmor         bool
	AppArmorProfiles []string
	AppArmorDefault  string
	// Seccomp makes the profile that stands for RuntimeDefault; nil if seccomp
	// is missing.
	Seccomp func(*specs.Spec) (*specs.LinuxSeccomp, error)
	// LeastOOMScoreAdj is the least oom_score_adj that may be given.
	LeastOOMScoreAdj int64
	// RecursiveReadOnly reports whether the kernel has it (Linux 5.12).
	RecursiveReadOnly bool
}

// Handler is what the OCI runtime of the container's handler can do, from the
// answer to its features command.
type Handler struct {
	RecursiveReadOnly, IDMap, NetDevices, IntelRdt bool
	// PrivilegedWithoutHostDevices leaves the host's devices out of privileged
	// containers.
	PrivilegedWithoutHostDevices bool
}

// linux returns what of the container is about Linux; never nil.
func (in *Input) linux() *runtimeapi.LinuxContainerConfig {
	if l := in.Container.GetLinux(); l != nil {
		return l
	}
	return &runtimeapi.LinuxContainerConfig{}
}

// security returns the container's security context; never nil.
func (in *Input) security() *runtimeapi.LinuxContainerSecurityContext {
	if s := in.linux().GetSecurityContext(); s != nil {
		return s
	}
	return &runtimeapi.LinuxContainerSecurityContext{}
}

func (in *Input) privileged() bool { return in.security().GetPrivileged() }

// userns returns the options of the sandbox': all containers of a pod share the namespace.
func (in *Input) userns() *runtimeapi.UserNamespace {
	return in.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
}

func (in *Input) ownUserns() bool {
	return in.userns() != nil && in.userns().GetMode() == runtimeapi.NamespaceMode_POD
}
