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

// Input is all that a pod's meaning depends on. Only Pod is required. Nothing
// in it is changed.
type Input struct {
	Pod  *v1.Pod
	Node Node
	// ConfigMaps and Secrets are those of the pod's namespace, by name.
	ConfigMaps map[string]*v1.ConfigMap
	Secrets    map[string]*v1.Secret
	// Services feed the environment: those of the pod's namespace, and the
	// service "kubernetes" of the namespace "default".
	Services []*v1.Service
	// PodIPs are the sandbox's addresses, primary first; none before there
	// is one.
	PodIPs []string
	// Volumes says where the pod's volumes are on the node, by name.
	Volumes map[string]string
	// ImageRefs has the references by which image volumes are mounted, by the volume's
	// name. A volume without one is mounted by the reference in the spec.
	ImageRefs map[string]string
	// ReadFile returns the content of a file of a volume, for variables that
	// come from files (KEP-3721): dir is where the volume is on the node, path
	// where the file is in it. A file that is not there is an
	// [io/fs.ErrNotExist]. It must follow no symbolic link out of dir: pods
	// write there. nil: pods that want such variables have a problem, but
	// podruntime sees to it.
	ReadFile func(dir, path string) ([]byte, error)
	// PodDir is the pod's own directory on the node.
	PodDir string
	// RuntimeHandler is the handler of the pod's runtime class, and Handler its
	// features.
	RuntimeHandler string
	Handler        HandlerFeatures
	// UserNamespace is the range of the node's IDs for a pod with hostUsers: false.
	UserNamespace *IDRange
	// VolumeGroups are groups that the files of the pod's volumes belong to.
	VolumeGroups []int64
	// Pinned has the CPUs and memory nodes of containers, by name. A container without an
	// entry runs on any.
	Pinned map[string]Pinning
	// Attached has the additions of plugins to containers, by the container's name.
	Attached map[string]Attachment
}

// HandlerFeatures has the features that the runtime reports for a handler.
type HandlerFeatures struct {
	UserNamespaces, RecursiveReadOnly bool
	// SupplementalGroupsPolicy reports whether the runtime obeys that field, with
	// every handler.
	SupplementalGroupsPolicy bool
}

// IDRange is a range of user and group IDs of the node. They are mapped to the pod's IDs from 0
// on.
type IDRange struct {
	First, Length uint32
}

// Pinning has the CPUs and memory nodes of a container.
type Pinning struct {
	// CPUs and MemoryNodes are lists as the kernel has them (cpuset(7)), such
	// as "0-3,8"; "" means any.
	CPUs, MemoryNodes string
	// NoQuota leaves out the CPU quota, for exclusive CPUs: a quota would only throttle
	// the container (the kubelet's DisableCPUQuotaWithExclusiveCPUs).
	NoQuota bool
}

// Attachment has the additions of plugins to a container: devices, and the settings to use them.
// Variables and annotations of the container itself override those of the Attachment.
type Attachment struct {
	Env         []v1.EnvVar // literal values
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDI         []string // fully qualified names
	Annotations map[string]string
}

// Node holds the facts of the node that pods depend on.
type Node struct {
	// Name is the node's name in the downward API.
	Name string
	// IPs are the node's addresses, primary first.
	IPs []string
	// Capacity is the node's capacity: OOM scores, swap and huge page sizes depend on
	// it. Allocatable replaces limits that are not set.
	Capacity, Allocatable v1.ResourceList
	CgroupV2              bool
	// NoCPUQuota turns off the CPU quota of CPU limits. CPUPeriod is the period of the
	// quota; 0 means 100ms.
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// SingleProcessOOMKill lets the kernel kill one process of a container
	// that is out of memory, instead of all of them. It matters with cgroup v2.
	SingleProcessOOMKill bool
	// CgroupParent is where the pod's cgroup is; "" leaves it to the
	// runtime.
	CgroupParent string
	// ResolvConf and HostsFile are the contents of the node's own files. A
	// node without ResolvConf resolves by itself, at its loopback address.
	ResolvConf, HostsFile string
	// ClusterDomain is the DNS domain of services, such as cluster.local. ClusterDNS has
	// the addresses of the DNS servers for it. A standalone node has neither.
	ClusterDomain string
	ClusterDNS    []string
	// PodLogsDir holds one directory for each pod.
	PodLogsDir string
	// SeccompDefault makes RuntimeDefault the profile of containers that
	// name none, and SeccompDir is where localhost profiles are.
	SeccompDefault bool
	SeccompDir     string
	// DefaultSysctls has the values, by name, of sysctls that a pod does not set. A pod
	// gets those of its own namespaces (KEP-5996).
	DefaultSysctls map[string]string
	// Swap says what containers may have of the node's swap; nil where
	// cgroups do not account for swap.
	Swap *Swap
	// MemoryQoS, if set, guards requests and throttles before limits (KEP-2570).
	// It takes cgroup v2.
	MemoryQoS *MemoryQoS
}

// Swap is the node's swap (KEP-2400).
type Swap struct {
	// Limited gives containers of Burstable pods a share by their memory
	// request; else nobody has any.
	Limited  bool
	Capacity int64 // bytes
}

// MemoryQoS defines how memory requests and limits become cgroup v2 values.
type MemoryQoS struct {
	// Throttling is the fraction of the way from request to limit at which a container
	// is throttled; 0 turns it off.
	Throttling float64
	// Reserve protects what containers request.
	Reserve bool
	// PageSize is the kernel's, in bytes; 0 means 4096.
	PageSize int64
}

// ContainerOptions has the input that is known only right before a container is created.
type ContainerOptions struct {
	// RestartCount counts the instances before this one. It names the log file.
	RestartCount int32
	Image        ImageFacts
	// TargetID is the container whose process namespace an ephemeral
	// container joins.
	TargetID string
}

// ImageFacts describes an image on the node, as the image service reports it.
type ImageFacts struct {
	// Ref is the reference that containers of the image are created with.
	Ref string
	// UID is the image's user if it is a number, User its name if not.
	UID  *int64
	User string
}

// ContainerPlan holds everything needed to create a container.
type ContainerPlan struct {
	// Config is the caller's, to be changed before it is used.
	Config *runtimeapi.ContainerConfig
	// Dirs and Files have to be there first, in this order.
	Dirs  []Dir
	Files []File
	// SubPaths are the mounts of parts of volumes. What the container's
	// processes may change at any moment has to be mounted with care: each is
	// to be opened safely, and Config.Mounts[Mount].HostPath to be replaced by
	// where it can be had. podruntime sees to it.
	SubPaths []SubPath
	// Warnings are what was left out or changed, for events.
	Warnings []Problem
}

// SandboxPlan holds everything needed to create a sandbox.
type SandboxPlan struct {
	Config *runtimeapi.PodSandboxConfig
	// Warnings are what was left out or changed, for events.
	Warnings []Problem
}

// SubPath is a part of a volume that a container mounts.
type SubPath struct {
	// Mount is the index in ContainerPlan.Config.Mounts, Index that in the
	// container's volumeMounts.
	Mount, Index int
	// Volume is the volume's name, VolumePath where it is on the node, Path
	// what is mounted of it: relative, and without "..".
	Volume, VolumePath, Path string
}

// Dir is a directory to make, with its parents, if it is not there.
type Dir struct {
	Path string
	Mode fs.FileMode
}

// File is a file to write.
type File struct {
	Path string
	// Mode is the file's whatever the umask is.
	Mode    fs.FileMode
	Content string
	// Keep leaves a file alone that is there already.
	Keep bool
}

// Reasons of problems, as the waiting state of a container shows them.
const (
	ReasonCreateContainerConfig = "CreateContainerConfigError"
	ReasonRunContainer          = "RunContainerError"
	ReasonCreateSandbox         = "CreatePodSandboxError"
)

// Reasons of warnings, as events show them.
const (
	ReasonInvalidEnvNames   = "InvalidEnvironmentVariableNames"
	ReasonDNSConfigForming  = "DNSConfigForming"
	ReasonMissingClusterDNS = "MissingClusterDNS"
)

// Problem is one mistake, or one thing worth a warning.
type Problem struct {
	// Path is the field, such as spec.containers[0].env[2].
	Path string
	// Reason is the word Kubernetes has for it.
	Reason string
	// Detail is at most maxDetail bytes long.
	Detail string
	// Known is how the text begins that the kubelet has for it, where people
	// and tools look for that in events; else "".
	Known string
}

// Error reports the field and what is wrong with it.
func (p Problem) Error() string {
	if p.Known != "" {
		return p.Known + p.Detail + " (" + p.Path + ")"
	}
	return p.Path + ": " + p.Detail
}

// Problems are all mistakes that were found; as an error it bears the first
// one's reason. A nil Problems in an error is not nil: [Problems.Err] is for that.
type Problems []Problem

// Err returns p as an error, which is nil if there are no problems.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Error reports the first problems, and how many more there are.
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

// Reason is the first problem's.
func (p Problems) Reason() string {
	if len(p) == 0 {
		return ""
	}
	return p[0].Reason
}

// collector gathers problems and warnings.
type collector struct {
	// reason is that of all problems; warnings have one each.
	reason   string
	problems Problems
	warnings []Problem
}

// add notes a mistake, with which nothing can be made. The compiler goes on, so
// that all are reported at once.
func (c *collector) add(path *field.Path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Path: path.String(), Reason: c.reason, Detail: clipTo(fmt.Sprintf(format, args...), maxDetail)})
}

// warn notes what is left out or changed while the pod goes on.
func (c *collector) warn(path *field.Path, reason, format string, args ...any) {
	c.warnings = append(c.warnings, Problem{Path: path.String(), Reason: reason, Detail: clipTo(fmt.Sprintf(format, args...), maxDetail)})
}

// err is nil, and no empty Problems, where nothing is wrong.
func (c *collector) err() error {
	return c.problems.Err()
}

// ErrNoContainer means that the pod has no container of that name.
var ErrNoContainer = errors.New("no such container")

// Group describes which list of the spec a container stands in.
type Group int

// The three lists.
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
			// A copy, as the type is another one: a change of it would not reach the
			// pod.
			c := v1.Container(e.EphemeralContainerCommon)
			return &c, Ephemeral, spec.Child("ephemeralContainers").Index(i), nil
		}
	}
	return nil, Regular, nil, fmt.Errorf("container %q of pod %s/%s: %w", name, pod.Namespace, pod.Name, ErrNoContainer)
}
