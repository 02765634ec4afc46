package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Input is everything that the compiled requests depend on. Only Pod is required. The compiler
// does not modify it.
type Input struct {
	// Life is the number of the pod's life: how often a pod with this UID has begun anew
	// (podlife.Life). The sandbox gets the number as an annotation; 0 adds none.
	Life uint32
	Pod  *v1.Pod
	Node Node
	// ConfigMaps and Secrets are the objects in the pod's namespace, by name.
	ConfigMaps map[string]*v1.ConfigMap
	Secrets    map[string]*v1.Secret
	// Services are the services whose addresses become variables: those of the pod's namespace,
	// and default/kubernetes.
	Services []*v1.Service
	// PodIPs has the sandbox's addresses, primary first; empty before there is a sandbox.
	PodIPs []string
	// Volumes has the paths of the pod's volumes on the node, by name.
	Volumes map[string]string
	// ImageRefs has the resolved references of image volumes, by the volume's name. A volume
	// without an entry uses the reference in the spec.
	ImageRefs map[string]string
	// ReadFile returns the content of a file in a volume, for variables from files (KEP-3721). dir
	// is the path of the volume on the node, and path the path of the file within the volume. It
	// returns [io/fs.ErrNotExist] if the file is missing. It must not follow symbolic links out of
	// dir, since pods can write there. If ReadFile is nil, a variable from a file is a problem.
	// podruntime sets it.
	ReadFile func(dir, path string) ([]byte, error)
	// PodDir is the pod's own directory on the node.
	PodDir string
	// RuntimeHandler is the handler of the pod's runtime class, and Handler its
	// features.
	RuntimeHandler string
	Handler        HandlerFeatures
	// UserNamespace is the range of user and group IDs of the node that a pod with hostUsers:
	// false gets.
	UserNamespace *IDRange
	// VolumeGroups are the group IDs of the files in the pod's volumes. The containers get them
	// as supplemental groups.
	VolumeGroups []int64
	// Pinned has the CPUs and memory nodes of containers, by the container's name. A container
	// without an entry may use all CPUs and memory nodes.
	Pinned map[string]Pinning
	// Attached has what plugins add to containers, by the container's name.
	Attached map[string]Attachment
}

// HandlerFeatures are the features that the runtime reports for a handler.
type HandlerFeatures struct {
	UserNamespaces, RecursiveReadOnly bool
	// SupplementalGroupsPolicy reports whether the runtime supports the field
	// supplementalGroupsPolicy of a pod. It is the same for all handlers.
	SupplementalGroupsPolicy bool
}

// IDRange is a range of user and group IDs of the node. The pod's IDs from 0 on map to it.
type IDRange struct {
	First, Length uint32
}

// Pinning has the CPUs and memory nodes of a container.
type Pinning struct {
	// CPUs and MemoryNodes are lists in the kernel's format (cpuset(7)), such as "0-3,8". If one
	// is "", all are meant.
	CPUs, MemoryNodes string
	// NoQuota omits the CPU quota. With exclusive CPUs a quota would only throttle the container
	// (the kubelet's DisableCPUQuotaWithExclusiveCPUs).
	NoQuota bool
}

// Attachment is what plugins add to a container: devices, and the settings to use them. Variables
// and annotations of the container itself take precedence.
type Attachment struct {
	Env         []v1.EnvVar // literal values
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDI         []string // fully qualified CDI device names
	Annotations map[string]string
}

// Node holds the facts of the node that pods depend on.
type Node struct {
	// Name is the node's name, for the downward API.
	Name string
	// IPs are the node's addresses, primary first.
	IPs []string
	// Capacity is the node's capacity; OOM scores, swap and huge page sizes depend on it.
	// Allocatable replaces unset limits in the downward API.
	Capacity, Allocatable v1.ResourceList
	CgroupV2              bool
	// NoCPUQuota turns off the CPU quota of CPU limits. CPUPeriod is the period of the quota. If
	// it is 0, the period is 100 ms.
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// SingleProcessOOMKill makes the kernel kill one process of a container that is out of
	// memory, instead of all. It has an effect on cgroup v2 only.
	SingleProcessOOMKill bool
	// CgroupParent is the path of the pod's cgroup. If it is "", the runtime chooses one.
	CgroupParent string
	// ResolvConf and HostsFile are the contents of the node's own files. Without ResolvConf, the
	// DNS server is the loopback address.
	ResolvConf, HostsFile string
	// ClusterDomain is the DNS domain of services, such as cluster.local. ClusterDNS has
	// the addresses of the DNS servers for it. A standalone node has neither.
	ClusterDomain string
	ClusterDNS    []string
	// PodLogsDir is the directory that contains one log directory for each pod.
	PodLogsDir string
	// SeccompDefault gives containers without a seccomp profile the profile RuntimeDefault.
	// SeccompDir is the directory of localhost profiles.
	SeccompDefault bool
	SeccompDir     string
	// DefaultSysctls has the values of sysctls that a pod does not set, by name. A pod gets those
	// that belong to its own namespaces (KEP-5996).
	DefaultSysctls map[string]string
	// Swap limits the swap of containers. It is nil if cgroups do not account for swap.
	Swap *Swap
	// MemoryQoS, if set, protects memory requests and throttles containers before they reach
	// their limits (KEP-2570). It needs cgroup v2.
	MemoryQoS *MemoryQoS
}

// Swap is the node's swap (KEP-2400).
type Swap struct {
	// Limited gives each container of a Burstable pod swap in proportion to its memory request.
	// Otherwise no container has swap.
	Limited  bool
	Capacity int64 // bytes
}

// MemoryQoS defines how memory requests and limits become cgroup v2 values.
type MemoryQoS struct {
	// Throttling is the point between request and limit at which a container is throttled, from 0
	// to 1. If it is 0, throttling is off.
	Throttling float64
	// Reserve protects the requested memory from reclaim.
	Reserve bool
	// PageSize is the kernel's page size in bytes. If it is 0, the size is 4096.
	PageSize int64
}

// ContainerOptions has the input that is known only right before a container is created.
type ContainerOptions struct {
	// RestartCount is the number of earlier instances of the container. The log file is named
	// after it.
	RestartCount int32
	Image        ImageFacts
	// TargetID is the ID of the container whose process namespace an ephemeral container joins.
	TargetID string
}

// ImageFacts describes an image on the node, as the image service reports it.
type ImageFacts struct {
	// Ref is the reference to create containers with.
	Ref string
	// UID is the image's user if the image names a number. Otherwise UID is nil and User is the
	// user's name.
	UID  *int64
	User string
}

// ContainerPlan holds everything needed to create a container.
type ContainerPlan struct {
	// Config is owned by the caller, who may modify it.
	Config *runtimeapi.ContainerConfig
	// Dirs and Files must be created first, in this order.
	Dirs  []Dir
	Files []File
	// SubPaths are the mounts of subpaths of volumes. Processes of the pod can replace these
	// paths by links at any moment. So the caller opens each path safely and replaces
	// Config.Mounts[Mount].HostPath. podruntime does this.
	SubPaths []SubPath
	// Warnings are the settings that were ignored or changed, for events.
	Warnings []Problem
}

// SandboxPlan holds everything needed to create a sandbox.
type SandboxPlan struct {
	Config *runtimeapi.PodSandboxConfig
	// Warnings are the settings that were ignored or changed, for events.
	Warnings []Problem
}

// SubPath is a part of a volume that a container mounts.
type SubPath struct {
	// Mount is an index into ContainerPlan.Config.Mounts. Index is an index into the container's
	// volumeMounts.
	Mount, Index int
	// Volume is the volume's name. VolumePath is the volume's path on the node. Path is the
	// mounted path within the volume: relative, without "..".
	Volume, VolumePath, Path string
}

// Dir is a directory to create, with its parents, if it is missing.
type Dir struct {
	Path string
	Mode fs.FileMode
}

// File is a file to write.
type File struct {
	Path string
	// Mode is the mode of the file, whatever the umask is.
	Mode    fs.FileMode
	Content string
	// Keep leaves an existing file unchanged.
	Keep bool
}

// Reasons of problems. They become the reason of the container's waiting state.
const (
	ReasonCreateContainerConfig = "CreateContainerConfigError"
	ReasonCreateSandbox         = "CreatePodSandboxError"
)

// Reasons of warnings. Events show them.
const (
	ReasonInvalidEnvNames   = "InvalidEnvironmentVariableNames"
	ReasonDNSConfigForming  = "DNSConfigForming"
	ReasonMissingClusterDNS = "MissingClusterDNS"
)

// Problem is a mistake in a pod, or a warning about it.
type Problem struct {
	// Path is the path of the field, such as spec.containers[0].env[2].
	Path string
	// Reason is the reason that Kubernetes uses, such as CreateContainerConfigError.
	Reason string
	// Detail describes the mistake in at most maxDetail bytes.
	Detail string
	// Known is the start of the kubelet's text for this problem. It is "" if nobody searches
	// events for that text.
	Known string
}

// Error reports the field and what is wrong with it.
func (p Problem) Error() string {
	if p.Known != "" {
		return p.Known + p.Detail + " (" + p.Path + ")"
	}
	return p.Path + ": " + p.Detail
}

// Problems are all mistakes of a pod or container. As an error, Problems has the reason of the
// first mistake. Convert it with [Problems.Err]: a nil Problems stored in an error variable is
// not a nil error.
type Problems []Problem

// Err returns p as an error, which is nil if there are no problems.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Error returns the first problems, and the number of the others.
func (p Problems) Error() string {
	const most = 10
	var all []string
	for i := range p[:min(len(p), most)] {
		all = append(all, p[i].Error())
	}
	if len(p) > most {
		all = append(all, fmt.Sprintf("and %d more", len(p)-most))
	}
	return strings.Join(all, "; ")
}

// Reason returns the reason of the first problem.
func (p Problems) Reason() string {
	if len(p) == 0 {
		return ""
	}
	return p[0].Reason
}

// collector gathers problems and warnings.
type collector struct {
	// reason is the reason of all problems; each warning has its own.
	reason   string
	problems Problems
	warnings []Problem
}

// add records a mistake, because of which the container or sandbox cannot be created. The
// compiler continues, so that all mistakes are reported at once.
func (c *collector) add(path *field.Path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: path.String(), Reason: c.reason, Detail: clipTo(fmt.Sprintf(format, args...), maxDetail)})
}

// warn records a setting that is ignored or changed. The pod still runs.
func (c *collector) warn(path *field.Path, reason, format string, args ...any) {
	c.warnings = append(c.warnings, Problem{Path: path.String(), Reason: reason, Detail: clipTo(fmt.Sprintf(format, args...), maxDetail)})
}

// err returns the problems as an error. It returns nil if there are none.
func (c *collector) err() error {
	return c.problems.Err()
}

// ErrNoContainer is returned if the pod has no container with the given name.
var ErrNoContainer = errors.New("no such container")

// Group says which list of the spec contains a container: init, regular or ephemeral.
type Group int

// Regular is spec.containers, Init spec.initContainers and Ephemeral
// spec.ephemeralContainers.
const (
	Regular Group = iota
	Init
	Ephemeral
)

// Find returns a pod's container by name, its list, and its path in the spec.
func Find(pod *v1.Pod, name string) (*v1.Container, Group, *field.Path, error) {
	spec := field.NewPath("spec")
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c, Regular, spec.Child("containers").Index(i), nil
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c, Init, spec.Child("initContainers").Index(i), nil
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			// Converting copies the container: a change to it would not reach the pod.
			c := v1.Container(e.EphemeralContainerCommon)
			return &c, Ephemeral, spec.Child("ephemeralContainers").Index(i), nil
		}
	}
	return nil, Regular, nil, fmt.Errorf("container %q of pod %s/%s: %w", name, pod.Namespace, pod.Name, ErrNoContainer)
}
