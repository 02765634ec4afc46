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

// Reaper is a runtime whose containers' processes are not in this machine's cgroups.
type Reaper interface {
	// Reap kills what runs of a container that the runtime has lost sight of, and
	// returns how many processes these were.
	Reap(id string) (killed int, err error)
}

// Config holds what an Agent is made of. Node.Name, Paths.Root, Runtime,
// Images.Service and Sources are required; the zero value of every other field
// means the default named beside it.
type Config struct {
	Node  node.Machine // node.DetectMachine looks at this machine
	Paths Paths
	// Runtime runs the pods; a *cri.Client is one, and an Images.Service. Processes that it
	// has lost sight of are killed in the machine's cgroups that bear their container's ID,
	// unless it is a Reaper.
	Runtime criapi.RuntimeService
	Images  Images
	// Sources say what should run.
	Sources []podmgr.Source
	// Parts are the concerns that one node has and another does without, in the
	// order in which they are called; none. See package part.
	Parts   []part.Part
	Volumes VolumeConfig
	// Cgroups keeps the cgroups of pods; none, each container is where the
	// runtime puts it.
	Cgroups Cgroups
	Pods    Pods
	Probes  Probes
	DNS     DNS
	Status  Status
	Cluster Cluster
	// Events gets every event; none, they are kept for local readers. One that
	// is an local.NodeEventRecorder or an local.AnnotatedEventRecorder gets more.
	Events local.EventRecorder
	// Lock is that of Paths.Root, which the caller has taken before
	// it opened anything there, and releases when it has ended itself. Run holds it
	// as long as it works. nil: Run takes one.
	Lock *node.DirLock

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Paths say where things are on the machine.
type Paths struct {
	// Root holds the agent's state and the pods' directories.
	Root string
	// PodLogs is where the runtime writes container logs; /var/log/pods.
	PodLogs string
	// ContainerLogs gets links to the logs of containers, which log collectors
	// look for; "containers" beside PodLogs, and so /var/log/containers. "-"
	// means none.
	ContainerLogs string
}

// Images say how images get to the node.
type Images struct {
	Service criapi.ImageManagerService
	// QPS and Burst bound the pulls a second, Parallel those at a time, and
	// ParallelPerRegistry those from one registry; 0 is no bound.
	QPS                           float64
	Burst                         int
	Parallel, ParallelPerRegistry int
	// Verify says for which images that are on the node a pod has to show that
	// it could have pulled them (KEP-2535), Allowlist which of them are spared;
	// images.NeverVerifyPreloadedImages.
	Verify    images.Verify
	Allowlist []string
	// Keyrings know credentials for images, beside the pods' secrets.
	Keyrings []images.Keyring
}

// VolumeConfig defines how pods get their volumes.
type VolumeConfig struct {
	// Manager mounts and unmounts volumes. Default: a volumemgr.Manager with all
	// plugins of this module, the sources' ConfigMaps and Secrets, and the fields
	// below.
	Manager Volumes
	// Tokens, Bundles and Certificates are for projected volumes. A pod whose
	// volume needs one that is nil does not start.
	Tokens       plugins.Tokens
	Bundles      plugins.Bundles
	Certificates plugins.Certificates
	// Plugins are further volume plugins, beside those of this module; none.
	Plugins []volumemgr.Plugin
	// Mounter makes and lists mounts; mount.Kernel, which mounts on this machine.
	Mounter mount.Mounter
	// BootID identifies the current boot of the machine: volumes in memory do not
	// survive it. Default: the kernel's boot_id.
	BootID string
	// SubPaths mounts subPaths of volumes for containers; bind mounts on this machine.
	SubPaths podruntime.SubPaths
}

// Pods say how pods are run. The kubelet's names of fields stand beside them.
type Pods struct {
	// SyncFrequency is how often a pod at rest is looked at again although
	// nothing happened; 1m (syncFrequency).
	SyncFrequency time.Duration
	// StartsInFlight is the number of pods that may start at the same time. Zero means the
	// default of podworker.Config.FirstSyncs.
	StartsInFlight int
	// CrashBackoff delays restarts of containers; the kubelet's policy, with
	// MaxCrashBackoff as its cap, 5m.
	CrashBackoff    podruntime.Backoff
	MaxCrashBackoff time.Duration
	// UnsafeSysctls are those that pods may set beside the safe ones: whole
	// names, or prefixes with a * (allowedUnsafeSysctls). None.
	UnsafeSysctls []string
	// DefaultSysctls are those of pods that do not set them, each where its
	// namespace is the pod's own (defaultPodSysctls, KEP-5996). None.
	DefaultSysctls map[string]string
	// SeccompDefault makes RuntimeDefault the profile of containers that name
	// none.
	SeccompDefault bool
	// NoCPUQuota leaves CPU limits without effect; CPUPeriod is what they are
	// measured in, 100ms (cpuCFSQuota, cpuCFSQuotaPeriod).
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// SingleProcessOOMKill lets the kernel kill one process of a container that
	// is out of memory, instead of all of them. It matters with cgroup v2.
	SingleProcessOOMKill bool
	// MemoryQoS guards what containers request of memory, and slows them down before
	// their limits, on cgroup v2 (KEP-2570); nobody does (memoryThrottlingFactor,
	// memoryReservationPolicy).
	MemoryQoS *podspec.MemoryQoS
}

// Probes say how the health of containers is checked.
type Probes struct {
	// Parallel bounds the network probes that run at a time, 256, and
	// ParallelExec those that run a command in a container, 32.
	Parallel, ParallelExec int
	// Fast looks at containers that have not started up or are not ready
	// 100 ms, 200 ms and so on after the first time, and not only once a period.
	Fast bool
	// KeepAlive reuses the connections of HTTP probes.
	KeepAlive bool
	// Network makes the checks that connect to a pod, and HTTPHook the requests of
	// lifecycle hooks, for pods that no network of this machine leads to; connections are
	// made. They return when ctx ends.
	Network  func(ctx context.Context, p *v1.Probe) (check.Outcome, string, error)
	HTTPHook func(ctx context.Context, g *v1.HTTPGetAction) error
}

// DNS is what pods resolve names with.
type DNS struct {
	// ClusterDomain and ClusterDNS are for pods with dnsPolicy ClusterFirst.
	ClusterDomain string
	ClusterDNS    []string
	// ResolvConf is the file that pods with dnsPolicy Default get;
	// /etc/resolv.conf (resolvConf). "-" means none.
	ResolvConf string
}

// Status defines where the statuses of pods go.
type Status struct {
	// Sink gets every status; files below Paths.Root, a statusmgr.FileSink. One
	// that is a statusmgr.Loader is asked at the start for what it has, and a
	// statusmgr.Pruner is told now and then which pods there are. With one that is
	// no Loader, start times and ages of pods that no API server keeps begin anew with each start
	// of the agent: statusmgr.Remembering makes it one.
	Sink statusmgr.Sink
	// MaxBackoff is the longest pause between two tries to hand a status to the
	// Sink; 1m.
	MaxBackoff time.Duration
}

// Cluster is what a cluster knows of the node. All functions but RuntimeClasses
// must answer from memory.
type Cluster struct {
	// NodeLabels are the node's labels of this moment, over those of Node, or
	// nil if they are not known; those of Node.
	NodeLabels func() map[string]string
	// NodeTaints are the node's taints of this moment: a pod that does not tolerate
	// those of effect NoExecute, and is not static, is rejected. None.
	NodeTaints func() []v1.Taint
	// NodeResources are those that the Node object has, as others set them:
	// extended resources among them that no plugin offers count for pods of the
	// API server. What is not there, and no plugin offers, is nothing that such a
	// pod waits for. None.
	NodeResources func() v1.ResourceList
	// Features are those that the node declares to schedulers (KEP-5328): a pod that
	// needs another one is rejected. nil: nobody is asked.
	Features []string
	// Services lists the services of all namespaces, for the environment variables
	// of containers; none. The slice is the caller's to change.
	Services func() []*v1.Service
	// RuntimeClasses knows which handler a runtime class means; without it the
	// class is the handler's name.
	RuntimeClasses func(ctx context.Context, name string) (handler string, err error)
}

// Defaults of Config, named where the kubelet has the same.
const (
	defaultPodLogs       = "/var/log/pods"    // podLogsDir
	defaultSyncFrequency = time.Minute        // syncFrequency
	defaultResolvConf    = "/etc/resolv.conf" // resolvConf
)

// withDefaults sets what is left open here. Defaults of the blocks' own fields are
// left to the blocks.
func (c Config) withDefaults() Config {
	c.Node = c.Node.WithDefaults()
	c.Paths.PodLogs = cmp.Or(c.Paths.PodLogs, defaultPodLogs)
	switch c.Paths.ContainerLogs {
	case "":
		// No links if PodLogs is that directory itself: links among the logs would
		// pass for logs.
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

// validate reports every field that is missing or wrong; what belongs to a block,
// the block checks itself.
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
	// Names of nodes are DNS subdomains (RFC 1123), which the API takes in lower
	// case only.
	need(c.Node.Name != "" && c.Node.Name == strings.ToLower(c.Node.Name), "Node.Name",
		fmt.Sprintf("is %q; a lower-case name is required", c.Node.Name))
	p := c.Paths
	// The runtime and the kernel are given these paths, and have other working
	// directories.
	need(filepath.IsAbs(p.Root), "Paths.Root", fmt.Sprintf("is %q; an absolute path is required", p.Root))
	need(filepath.IsAbs(p.PodLogs), "Paths.PodLogs", fmt.Sprintf("is %q; an absolute path is required", p.PodLogs))
	need(p.ContainerLogs == "" || filepath.IsAbs(p.ContainerLogs) && p.ContainerLogs != filepath.Clean(p.PodLogs), "Paths.ContainerLogs",
		fmt.Sprintf("is %q; an absolute path other than PodLogs, or \"-\" for none, is required", p.ContainerLogs))
	need(c.Pods.SyncFrequency > 0, "Pods.SyncFrequency", fmt.Sprintf("is %v; a positive duration is required", c.Pods.SyncFrequency))
	need(c.Pods.StartsInFlight >= 0, "Pods.StartsInFlight", fmt.Sprintf("is %d; a positive number, or 0 for the default, is required", c.Pods.StartsInFlight))
	return errors.Join(errs...)
}
