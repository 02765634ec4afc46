package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/probe/check"
	"github.com/nodewright/nodewright/statusmgr"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// Reaper is implemented by a runtime whose containers run outside of this machine's cgroups.
type Reaper interface {
	// Reap kills the processes of a container that the runtime no longer tracks, and returns their
	// number.
	Reap(id string) (killed int, err error)
}

// Config configures an Agent. Node.Name, Paths.Root, Runtime, Images.Service and Sources are
// required; the zero value of every other field means the default named beside it.
type Config struct {
	Node  node.Machine // node.DetectMachine looks at this machine
	Paths Paths
	// Runtime runs the pods. A *cri.Client implements it and Images.Service. If the runtime no
	// longer tracks the processes of a container, the agent kills them by the container's cgroup,
	// whose name has the container's ID. If Runtime is a Reaper, the agent calls Reap instead.
	Runtime criapi.RuntimeService
	Images  Images
	// Sources deliver the pods that should run.
	Sources []podmgr.Source
	// Parts are the optional concerns of the node, in the order in which they are called. Default:
	// none. See package part.
	Parts   []part.Part
	Volumes VolumeConfig
	// Cgroups manages the cgroups of pods. Default: none, and the runtime chooses the cgroup of
	// each container.
	Cgroups Cgroups
	Pods    Pods
	Probes  Probes
	DNS     DNS
	Status  Status
	Cluster Cluster
	// Events gets every event; by default events are stored for local readers. A recorder that
	// implements local.NodeEventRecorder or local.AnnotatedEventRecorder also gets events of
	// the node, or the annotations of events.
	Events local.EventRecorder
	// Lock is a lock of Paths.Root that the caller has taken before opening anything there. The
	// caller releases it; Run holds it while it works. Default: Run takes its own lock.
	Lock *node.DirLock

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Paths has the directories of the agent.
type Paths struct {
	// Root has the agent's state and the pods' directories.
	Root string
	// PodLogs is the directory to which the runtime writes container logs; /var/log/pods.
	PodLogs string
	// ContainerLogs is the directory of links to container logs, for log collectors; "containers"
	// beside PodLogs, which is /var/log/containers by default. "-" means no links.
	ContainerLogs string
}

// Images configures pulls of images.
type Images struct {
	Service criapi.ImageManagerService
	// QPS and Burst limit the pulls per second, Parallel the concurrent pulls, and
	// ParallelPerRegistry the concurrent pulls from one registry; 0 means no limit.
	QPS                           float64
	Burst                         int
	Parallel, ParallelPerRegistry int
	// Verify selects the images on the node that a pod may use only with valid pull
	// credentials (KEP-2535). Allowlist has the names of images that every pod may use.
	// Default: images.NeverVerifyPreloadedImages.
	Verify    images.Verify
	Allowlist []string
	// Keyrings have credentials for images, in addition to the pods' Secrets.
	Keyrings []images.Keyring
}

// VolumeConfig configures the volumes of pods.
type VolumeConfig struct {
	// Manager mounts and unmounts volumes. Default: a volumemgr.Manager with all
	// plugins of this module, the sources' ConfigMaps and Secrets, and the fields
	// below.
	Manager Volumes
	// Tokens, Bundles and Certificates are for projected volumes. If one of them is nil, a pod with
	// a volume that needs it does not start.
	Tokens       plugins.Tokens
	Bundles      plugins.Bundles
	Certificates plugins.Certificates
	// Plugins are additional volume plugins; none.
	Plugins []volumemgr.Plugin
	// Mounter mounts file systems and lists mounts; mount.Kernel, which uses this machine's kernel.
	Mounter mount.Mounter
	// BootID identifies the current boot of the machine: volumes in memory do not
	// survive it. Default: the kernel's boot_id.
	BootID string
	// Projects measures the emptyDir volumes of pods with a user namespace by project quotas, on
	// file systems that support these
	// (featureGates.LocalStorageCapacityIsolationFSQuotaMonitoring).
	Projects bool
	// SubPaths mounts subPaths of volumes for containers; bind mounts on this machine.
	SubPaths podruntime.SubPaths
}

// Pods configures how pods run. Fields name the kubelet's fields in parentheses.
type Pods struct {
	// SyncFrequency is the interval at which a pod is synced without any event; 1m (syncFrequency).
	SyncFrequency time.Duration
	// StartsInFlight is the number of pods that may start at the same time. Zero means the
	// default of podworker.Config.FirstSyncs.
	StartsInFlight int
	// CrashBackoff returns the delay of a container's restart; podruntime.DoublingBackoff, the
	// kubelet's policy.
	CrashBackoff podruntime.Backoff
	// UnsafeSysctls are allowed in pods in addition to the safe ones: whole names, or prefixes with
	// a * (allowedUnsafeSysctls). None.
	UnsafeSysctls []string
	// DefaultSysctls are set in pods that do not set them, if the pod has its own namespace for the
	// sysctl (defaultPodSysctls, KEP-5996). None.
	DefaultSysctls map[string]string
	// SeccompDefault makes RuntimeDefault the profile of containers that set none.
	SeccompDefault bool
	// NoCPUQuota disables CPU limits. CPUPeriod is the CFS period, 100ms (cpuCFSQuota,
	// cpuCFSQuotaPeriod).
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// SingleProcessOOMKill lets the kernel kill a single process of a container that is out of
	// memory, instead of all processes. It has an effect with cgroup v2 only.
	SingleProcessOOMKill bool
	// MemoryQoS protects the memory requests of containers, and throttles containers before they
	// reach their limits, on cgroup v2 (KEP-2570); disabled (memoryThrottlingFactor,
	// memoryReservationPolicy).
	MemoryQoS *podspec.MemoryQoS
}

// Probes configures the health checks of containers.
type Probes struct {
	// Parallel limits the concurrent network probes, 256, and ParallelExec the concurrent exec
	// probes, 32.
	Parallel, ParallelExec int
	// Fast makes the probes of containers that have not started or are not ready more frequent
	// than once a period: they run again 100 ms, 200 ms and so on after the first check.
	Fast bool
	// KeepAlive reuses the connections of HTTP probes.
	KeepAlive bool
	// Network runs the probes that connect to a pod, and HTTPHook sends the requests of lifecycle
	// hooks. They are for pods whose network this machine cannot reach. Both must return when ctx
	// ends. Default: the agent connects to the pod.
	Network  func(ctx context.Context, p *v1.Probe) (check.Outcome, string, error)
	HTTPHook func(ctx context.Context, g *v1.HTTPGetAction) error
}

// DNS configures the name resolution of pods.
type DNS struct {
	// ClusterDomain and ClusterDNS are for pods with dnsPolicy ClusterFirst.
	ClusterDomain string
	ClusterDNS    []string
	// ResolvConf is the file for pods with dnsPolicy Default; /etc/resolv.conf (resolvConf). "-"
	// means none.
	ResolvConf string
}

// Status configures the destination of pod statuses.
type Status struct {
	// Sink gets every status. Default: files below Paths.Root. If the Sink is a statusmgr.Loader,
	// the agent loads its stored statuses at the start. If it is a statusmgr.Pruner, the agent
	// passes it the known pods from time to time. If it is not a Loader, the start times and ages
	// of pods without an API server are reset at each start of the agent; statusmgr.Remembering
	// adds a store to such a Sink.
	Sink statusmgr.Sink
	// MaxBackoff is the longest pause between two tries to write a status to the Sink; 1m.
	MaxBackoff time.Duration
}

// Cluster has what a cluster knows about the node. All functions except RuntimeClasses must
// only read memory.
type Cluster struct {
	// NodeLabels returns the node's current labels, which override those of Config.Node; nil
	// means that they are not known. Default: the labels of Config.Node.
	NodeLabels func() map[string]string
	// NodeTaints returns the node's current taints. A pod that is not static and does not tolerate
	// a NoExecute taint is rejected. None.
	NodeTaints func() []v1.Taint
	// NodeResources returns the resources of the Node object, including those that other programs
	// set. If no plugin offers an extended resource, pods of the API server get it by the count in
	// this list. If the resource is not in this list either, these pods do not wait for it.
	// Default: none.
	NodeResources func() v1.ResourceList
	// Features are the features that the node declares to schedulers (KEP-5328): a pod that needs
	// another one is rejected. nil: features are not checked.
	Features []string
	// Services lists the services of all namespaces, for the environment variables of containers;
	// none. The caller may change the slice.
	Services func() []*v1.Service
	// RuntimeClasses returns the handler of a runtime class; by default the class name is the
	// handler's name.
	RuntimeClasses func(ctx context.Context, name string) (handler string, err error)
}

// Defaults of Config. The kubelet's field is named where it has one.
const (
	defaultPodLogs       = "/var/log/pods"    // podLogsDir
	defaultSyncFrequency = time.Minute        // syncFrequency
	defaultResolvConf    = "/etc/resolv.conf" // resolvConf
)

// withDefaults sets the defaults of the agent's own fields. Blocks set their own defaults.
func (c Config) withDefaults() Config {
	c.Node = c.Node.WithDefaults()
	c.Paths.PodLogs = cmp.Or(c.Paths.PodLogs, defaultPodLogs)
	switch c.Paths.ContainerLogs {
	case "":
		// There are no links if the directory is PodLogs itself: links among the logs would be read
		// as logs.
		if dir := filepath.Join(filepath.Dir(filepath.Clean(c.Paths.PodLogs)), "containers"); dir != filepath.Clean(c.Paths.PodLogs) {
			c.Paths.ContainerLogs = dir
		}
	case "-":
		c.Paths.ContainerLogs = ""
	}
	c.Pods.SyncFrequency = cmp.Or(c.Pods.SyncFrequency, defaultSyncFrequency)
	c.DNS.ResolvConf = cmp.Or(c.DNS.ResolvConf, defaultResolvConf)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns an error for every invalid field. Blocks check their own fields.
func (c Config) validate() error {
	var errs []error
	need := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s %s", field, want))
		}
	}
	need(c.Runtime != nil, "Runtime", "is required")
	need(c.Images.Service != nil, "Images.Service", "is required")
	need(len(c.Sources) > 0, "Sources", "is empty; at least one is required")
	// A node's name is a DNS subdomain (RFC 1123), which the API accepts in lower case only.
	need(c.Node.Name != "" && c.Node.Name == strings.ToLower(c.Node.Name), "Node.Name",
		fmt.Sprintf("is %q; a lower-case name is required", c.Node.Name))
	p := c.Paths
	// The runtime and the kernel get these paths, and have other working directories.
	need(filepath.IsAbs(p.Root), "Paths.Root", fmt.Sprintf("is %q; an absolute path is required", p.Root))
	need(filepath.IsAbs(p.PodLogs), "Paths.PodLogs", fmt.Sprintf("is %q; an absolute path is required", p.PodLogs))
	need(p.ContainerLogs == "" || filepath.IsAbs(p.ContainerLogs) && p.ContainerLogs != filepath.Clean(p.PodLogs), "Paths.ContainerLogs",
		fmt.Sprintf("is %q; an absolute path other than PodLogs, or \"-\" for none, is required", p.ContainerLogs))
	need(c.Pods.SyncFrequency > 0, "Pods.SyncFrequency", fmt.Sprintf("is %v; a positive duration is required", c.Pods.SyncFrequency))
	need(c.Pods.StartsInFlight >= 0, "Pods.StartsInFlight", fmt.Sprintf("is %d; a positive number, or 0 for the default, is required", c.Pods.StartsInFlight))
	return errors.Join(errs...)
}
