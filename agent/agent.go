package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent/fit"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/devicemgr/podresources"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/node/oom"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
	"github.com/nodewright/nodewright/volumemgr/content"
)

// EventRecorder takes the events that the reference would send to the API
// server. It must not block for long.
type EventRecorder interface {
	Event(pod *v1.Pod, eventType, reason, message string)
}

// Config holds what an Agent is made of. Runtime, Images, Sources, Node.Name
// and RootDir are required; the zero value of every other field means the
// default named beside it.
type Config struct {
	Node Node
	// RootDir holds the agent's state and the pods' directories.
	RootDir string
	// PodLogsDir is where the runtime writes container logs; /var/log/pods.
	PodLogsDir string
	// ContainerLogsDir gets links to the logs of containers, which log
	// collectors look for; "containers" beside PodLogsDir, and so
	// /var/log/containers. "-" means none.
	ContainerLogsDir string

	// Runtime and Images are the two services of a CRI runtime. A
	// *cri.Client is both.
	Runtime criapi.RuntimeService
	Images  criapi.ImageManagerService
	// Sources say what should run.
	Sources []podmgr.Source

	// Volumes makes volumes; a volumemgr.Manager with all plugins of this
	// module, and the sources' ConfigMaps and Secrets.
	Volumes Volumes
	// Cgroups keeps the cgroups of pods; none, each container is where the
	// runtime puts it.
	Cgroups Cgroups
	// Devices gives pods the devices of plugins; none, resources that the node
	// does not have by itself are not there.
	Devices Devices
	// DRA prepares the ResourceClaims of pods; none, pods that use some do not
	// start. ManifestClaims, if not nil, get those that stand in the Sources.
	DRA            DRA
	ManifestClaims *ManifestClaims
	// PluginDir is where plugins of other kinds put their sockets, and device
	// plugins may: the kubelet's is /var/lib/kubelet/plugins_registry. None are
	// looked for. PluginHandlers take those of each type, after Devices and
	// DRA.
	PluginDir      string
	PluginHandlers map[string][]pluginmgr.Handler
	// PodResourcesSocket serves the podresources API: the kubelet's is
	// /var/lib/kubelet/pod-resources/kubelet.sock. It is not served. Claims tell
	// it of dynamic resources; those of DRA.
	PodResourcesSocket string
	Claims             podresources.Claims
	// UnsafeSysctls are those that pods may set beside the safe ones: whole
	// names, or beginnings with a * (allowedUnsafeSysctls). None.
	UnsafeSysctls []string
	// Admitters are asked after the agent's own checks, in order.
	Admitters []Admitter
	// Placement gives containers CPUs and memory of their own, on the machine's
	// NUMA nodes; none does.
	Placement fit.Config
	// GC says what is removed of images, dead containers and logs; the
	// kubelet's defaults.
	GC GC
	// Sink gets every status; none, statuses are kept for local readers. One
	// that is a statusmgr.Loader is asked at the start for what it has, and one
	// with a method Prune(keep map[types.UID]bool) error is told now and then
	// which pods there are.
	Sink statusmgr.Sink
	// MaxPublishBackoff is the longest pause between two tries to hand a status
	// to the Sink; 1m.
	MaxPublishBackoff time.Duration
	// NodeLabels are the node's labels of this moment, over those of Node, or
	// nil if they are not known; those of Node. It must answer from memory.
	NodeLabels func() map[string]string
	// NodeResources are those that the Node object has, as others set them:
	// extended resources among them that no plugin offers count for pods of the
	// API server. What is not there, and no plugin offers, is nothing that such a
	// pod waits for. None. It must answer from memory.
	NodeResources func() v1.ResourceList
	// Mirrors makes pods that stand for static ones in a cluster, under which
	// their statuses go to the Sink; none, they go there under their own.
	Mirrors Mirrors
	// Services lists those that the environment of containers tells of, of all
	// namespaces, in a slice that is the caller's; none.
	Services func() []*v1.Service
	// RuntimeClasses knows which handler a runtime class means; without it the
	// class is the handler's name.
	RuntimeClasses func(ctx context.Context, name string) (handler string, err error)
	// Tokens, Bundles and Certificates are for projected volumes; pods that
	// want one wait for it in vain without. Tokens with a method
	// Retain(known func(types.UID) bool) are told now and then which pods there
	// are.
	Tokens       content.Tokens
	Bundles      content.Bundles
	Certificates content.Certificates
	// Events gets every event; none, they are kept for local readers. One that
	// is a NodeEventRecorder too gets those about the node.
	Events EventRecorder

	// ParallelProbes bounds the network probes that run at a time, 256, and
	// ParallelExecProbes those that run a command in a container, 32.
	ParallelProbes, ParallelExecProbes int
	// FastProbes looks at containers that have not started up or are not ready
	// 100 ms, 200 ms and so on after the first time, and not only once a period.
	FastProbes bool
	// ProbeKeepAlive reuses the connections of HTTP probes.
	ProbeKeepAlive bool

	// SyncFrequency is how often a pod at rest is looked at again although
	// nothing happened; 1m, the kubelet's syncFrequency.
	SyncFrequency time.Duration
	// StartsInFlight bounds how many pods start at the same time; 4. More
	// gain no throughput on a small machine and delay the median pod.
	StartsInFlight int
	// CrashBackoff delays restarts of containers; the kubelet's policy, with
	// MaxCrashBackoff as its cap.
	CrashBackoff podruntime.Backoff
	// MaxCrashBackoff caps the delay between restarts of a container; 5m.
	MaxCrashBackoff time.Duration
	// PullQPS and PullBurst bound the pulls a second, ParallelPulls those at
	// a time; 0 is no bound.
	PullQPS       float64
	PullBurst     int
	ParallelPulls int
	// ParallelPullsPerRegistry bounds those from one registry; no bound.
	ParallelPullsPerRegistry int
	// VerifyPulls says for which images that are on the node a pod has to
	// show that it could have pulled them (KEP-2535), PullAllowlist which of
	// them are spared; images.NeverVerifyPreloadedImages.
	VerifyPulls   images.Verify
	PullAllowlist []string
	// Keyrings know credentials for images, beside the pods' secrets.
	Keyrings []images.Keyring

	// ClusterDomain and ClusterDNS are for pods with dnsPolicy ClusterFirst.
	ClusterDomain string
	ClusterDNS    []string
	// ResolvConf is the file that pods with dnsPolicy Default get;
	// /etc/resolv.conf. "-" means none.
	ResolvConf string
	// SeccompDefault makes RuntimeDefault the profile of containers that
	// name none.
	SeccompDefault bool
	// NoCPUQuota leaves CPU limits without effect; CPUPeriod is what they are
	// measured in, 100ms.
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// SingleProcessOOMKill lets the kernel kill one process of a container
	// that is out of memory, instead of all of them. It matters with cgroup v2.
	SingleProcessOOMKill bool

	// Eviction ends pods when the node runs short; none does.
	Eviction *Eviction
	// OOM tells of processes that the kernel kills; nothing does.
	OOM *OOM
	// Shutdown ends pods in order when the machine goes down; none does.
	Shutdown *Shutdown
	// SystemCgroups tells which cgroups the Summary shows beside the pods', by
	// the names of the summary API: kubelet, runtime, misc; none.
	SystemCgroups func() map[string]string

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// Defaults of Config, named where the kubelet has the same.
const (
	defaultPodLogsDir     = "/var/log/pods" // podLogsDir
	defaultSyncFrequency  = time.Minute     // syncFrequency
	defaultStartsInFlight = 4
	defaultResolvConf     = "/etc/resolv.conf" // resolvConf
)

func (c Config) withDefaults() Config {
	c.Node = c.Node.withDefaults()
	if c.PodLogsDir == "" {
		c.PodLogsDir = defaultPodLogsDir
	}
	switch c.ContainerLogsDir {
	case "":
		if dir := filepath.Join(filepath.Dir(filepath.Clean(c.PodLogsDir)), "containers"); dir != filepath.Clean(c.PodLogsDir) {
			c.ContainerLogsDir = dir
		}
	case "-":
		c.ContainerLogsDir = ""
	}
	if c.SyncFrequency == 0 {
		c.SyncFrequency = defaultSyncFrequency
	}
	if c.StartsInFlight == 0 {
		c.StartsInFlight = defaultStartsInFlight
	}
	if c.ResolvConf == "" {
		c.ResolvConf = defaultResolvConf
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	need := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s %s", field, want))
		}
	}
	need(c.Runtime != nil, "Runtime", "is required")
	need(c.Images != nil, "Images", "is required")
	need(len(c.Sources) > 0, "Sources", "is empty; at least one is required")
	need(c.Node.Name != "" && c.Node.Name == strings.ToLower(c.Node.Name), "Node.Name",
		fmt.Sprintf("is %q; a lower-case name is required", c.Node.Name))
	need(filepath.IsAbs(c.RootDir), "RootDir", fmt.Sprintf("is %q; an absolute path is required", c.RootDir))
	need(filepath.IsAbs(c.PodLogsDir), "PodLogsDir", fmt.Sprintf("is %q; an absolute path is required", c.PodLogsDir))
	need(c.ContainerLogsDir == "" || filepath.IsAbs(c.ContainerLogsDir) && c.ContainerLogsDir != filepath.Clean(c.PodLogsDir), "ContainerLogsDir",
		fmt.Sprintf("is %q; an absolute path other than PodLogsDir, or \"-\" for none, is required", c.ContainerLogsDir))
	need(c.SyncFrequency > 0, "SyncFrequency", fmt.Sprintf("is %v; a positive duration is required", c.SyncFrequency))
	need(c.StartsInFlight > 0, "StartsInFlight", fmt.Sprintf("is %d; a positive number is required", c.StartsInFlight))
	return errors.Join(errs...)
}

// Agent is a node agent. All methods may be called from any goroutine.
type Agent struct {
	cfg Config
	log *zap.Logger

	reader     *cri.Reader
	pleg       *pleg.Manager
	pods       *podmgr.Manager
	workers    *podworker.Manager
	images     *images.Manager
	runtime    *podruntime.Manager
	statuses   *statusmgr.Manager
	probes     *probe.Manager
	events     *eventLog
	gc         *garbage
	nodeEvents *nodeEvents
	stats      *stats.Manager
	eviction   *eviction.Manager // nil: nothing is evicted
	limits     limitMeters
	oom        *oom.Manager      // nil: nobody watches
	shutdown   *shutdown.Manager // nil: not handled
	volumes    Volumes
	node       *predicates // the first of admit
	admit      []Admitter
	files      nodeFiles
	handlers   handlers
	name       runtimeName
	ids        *idRanges
	grants     *grants
	mirrors    *mirrors
	// placement is nil if nothing is placed.
	placement *placement
	decisions *decisions
	prepares  *prepares
	plugins   *pluginmgr.Manager // nil: none are looked for
	// podResources is nil if nobody is told.
	podResources *podresources.Server
	settled      chan struct{} // closed when all sources have spoken
	takenUp      sync.Once     // a shutdown has waited for that
	allSpoken    sync.Once
	cgroupV2     bool
	metrics      *metrics
	cleanup      chan struct{}             // asks the loop for housekeeping; capacity 1
	beat         atomic.Pointer[time.Time] // when the loop last turned
	sweeping     atomic.Bool
	sweeps       sync.WaitGroup

	ready chan struct{}

	mu        sync.Mutex
	admitted  map[types.UID]bool
	rejected  map[types.UID]Rejection
	evicted   map[types.UID]*evictedPod
	deadlines map[types.UID]*time.Timer
}

// New checks cfg and builds an Agent at rest. Nothing is opened, made or
// started before [Agent.Run].
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a := &Agent{
		cfg:        cfg,
		log:        cfg.Log,
		events:     newEventLog(cfg.Log.Named("event"), cfg.Events),
		nodeEvents: newNodeEvents(cfg.Log.Named("event"), cfg.Node.Name, cfg.Events),
		volumes:    cfg.Volumes,
		cleanup:    make(chan struct{}, 1),
		ready:      make(chan struct{}),
		admitted:   map[types.UID]bool{},
		rejected:   map[types.UID]Rejection{},
		deadlines:  map[types.UID]*time.Timer{},
		handlers:   handlers{runtime: cfg.Runtime, classes: cfg.RuntimeClasses},
		name:       runtimeName{runtime: cfg.Runtime},
		ids:        newIDRanges(cfg.RootDir, cfg.Log),
		mirrors:    newMirrors(cfg.Mirrors, cfg.Log.Named("mirror")),
		settled:    make(chan struct{}),
	}
	a.node = &predicates{
		nodeName: cfg.Node.Name, fixed: cfg.Node.Labels, live: cfg.NodeLabels, allocatable: cfg.Node.Allocatable, others: cfg.NodeResources,
		unsafe: cfg.UnsafeSysctls, armored: sync.OnceValue(appArmorEnabled),
	}
	if cfg.Devices != nil {
		a.node.devices = cfg.Devices.Capacity
	}
	a.admit = append([]Admitter{a.node, pressure{a}, leaving{a}}, slices.Clone(cfg.Admitters)...)
	a.files.resolvConf = cfg.ResolvConf
	a.cgroupV2 = CgroupV2()
	if err := a.buildBlocks(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// Ready is closed when Run has taken up its work: the lock is held and the
// blocks run. It does not wait for the runtime or for any pod.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run takes the root directory's lock and runs pods until ctx ends. Then it
// stops its own work, leaves every container running, and returns nil. An
// error means that it could not begin: the directory cannot be used, or
// another agent holds it (ErrLocked).
func (a *Agent) Run(ctx context.Context) error {
	if err := os.MkdirAll(a.podsDir(), 0o750); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	lock, err := lockRoot(a.cfg.RootDir)
	if err != nil {
		return err
	}
	defer lock.release()

	a.restoreShutdown()
	// Statuses are written until the last worker has ended, and the workers
	// want the runtime's state until then.
	readers, stopReaders := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReaders()
	if err := a.statuses.Restore(readers); err != nil {
		a.log.Error("not all statuses of before are known", zap.Error(err))
	}
	lower, _ := errgroup.WithContext(readers)
	lower.Go(func() error { return a.pleg.Run(readers) })
	lower.Go(func() error { return a.runVolumes(readers) })
	lower.Go(func() error { return a.runCgroups(readers) })
	lower.Go(func() error { return a.runDevices(readers) })
	lower.Go(func() error { return a.runDRA(readers) })
	lower.Go(func() error { return a.statuses.Run(readers) })

	upper, uctx := errgroup.WithContext(ctx)
	a.decisions.ctx = uctx
	upper.Go(func() error { return a.gc.run(uctx) })
	upper.Go(func() error { return a.probes.Run(uctx) })
	upper.Go(func() error { return a.runPlugins(uctx) })
	upper.Go(func() error { return a.runPodResources(uctx) })
	upper.Go(func() error { return a.pods.Run(uctx) })
	upper.Go(func() error { return a.workers.Run(uctx) })
	upper.Go(func() error { return a.loop(uctx) })
	upper.Go(func() error { return a.runEviction(uctx) })
	upper.Go(func() error { return a.runOOM(uctx) })
	upper.Go(func() error { return a.runShutdown(uctx) })
	close(a.ready)

	err = upper.Wait()
	a.sweeps.Wait()
	a.mirrors.close()
	stopReaders()
	return errors.Join(err, lower.Wait())
}

func (a *Agent) podsDir() string             { return filepath.Join(a.cfg.RootDir, "pods") }
func (a *Agent) podDir(uid types.UID) string { return filepath.Join(a.podsDir(), string(uid)) }
