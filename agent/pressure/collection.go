package pressure

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/gc/crigc"
	"github.com/nodewright/nodewright/gc/logrotate"
)

// collectionName is the name of the part.
const collectionName = "collection"

// CollectionRuntime has the calls of a container runtime for garbage collection. *cri.Client
// implements it.
type CollectionRuntime interface {
	crigc.ContainerService
	logrotate.Runtime
}

// CollectionConfig configures the garbage collection of images, dead containers and logs. Runtime
// and Images are required. Every other field has a default for its zero value, which is the
// kubelet's default.
type CollectionConfig struct {
	Runtime CollectionRuntime
	Images  crigc.ImageService

	// ImagePolicy says when images are removed; gc.DefaultImagePolicy().
	ImagePolicy *gc.ImagePolicy
	// PinnedImages are the names of images that are never removed, in addition to those that the
	// runtime pins: see gc.ImageConfig.
	PinnedImages []string
	// ContainerPolicy says how many dead containers are kept; gc.DefaultContainerPolicy().
	ContainerPolicy *gc.ContainerPolicy
	// Logs configures log rotation.
	Logs LogRotation

	// PodLogsDir is the directory to which the runtime writes container logs; /var/log/pods.
	PodLogsDir string
	// ContainerLogsDir is the directory of links to logs. If it is "", there are no links.
	ContainerLogsDir string

	// Store stores the times at which images were last used, over a restart of the agent. If it
	// is nil, they are not stored.
	Store part.Store
	// Log is the agent's logger. The collectors log under the names imagegc, containergc and
	// logrotate below it. If Log is nil, nothing is logged.
	Log     *zap.Logger
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// LogRotation configures the rotation of container logs. The zero value of a field means the
// default named beside it.
type LogRotation struct {
	// Off disables rotation.
	Off bool
	// MaxSize is the size in bytes from which a log is rotated. The default is 10 MiB. MaxFiles
	// limits the log files of a container. The default is 5.
	MaxSize  int64
	MaxFiles int
	// PodBudget limits the bytes of all logs of a pod. If it is 0, there is no limit.
	PodBudget int64
	// Workers limits how many rotated logs are compressed at a time. The default is 1.
	Workers int
	// Longest is the longest time between two checks of a growing log. The default is 10 s.
	Longest time.Duration
	// Poll disables the watches of logs: then logs that do not grow are also checked at
	// the interval Longest.
	Poll bool
}

const defaultPodLogsDir = "/var/log/pods" // podLogsDir of the kubelet

func (c CollectionConfig) withDefaults() CollectionConfig {
	if c.PodLogsDir == "" {
		c.PodLogsDir = defaultPodLogsDir
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func (c *CollectionConfig) validate() error {
	var errs []error
	if c.Runtime == nil {
		errs = append(errs, errors.New("field CollectionConfig.Runtime is required"))
	}
	if c.Images == nil {
		errs = append(errs, errors.New("field CollectionConfig.Images is required"))
	}
	return errors.Join(errs...)
}

// Collection is the part that removes garbage: images that
// no pod needs, dead containers with their sandboxes and log directories, and
// logs that have grown too large.
//
//	p, err := pressure.NewCollection(pressure.CollectionConfig{
//		Runtime: runtime, Images: runtime, PodLogsDir: "/var/log/pods",
//		Store: part.OpenStore(filepath.Join(root, "imagegc"), log), Log: log, Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	answer, err := p.Images(ctx)  // which images there are, and what would become of each
//	reclaim := p.Reclaimer()      // for package eviction
//
// It connects the collectors of package gc to an agent.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Hold and HoldImage prevent the removal of a pod's containers, and of the images that it needs,
// while its worker is running. Happened follows the runtime: one second after a container has
// died, the collector checks it, and the log of a running container is watched. Sweep removes the
// log directories of pods that are gone. Join needs a Host that implements [part.Garbage].
//
// # When
//
// Dead containers are removed and logs are rotated as soon as the runtime has been
// listed. Images are removed only when every source has delivered, unless eviction
// reclaims space.
//
// # Ownership
//
// [NewCollection] has no side effects; every goroutine ends with [Collection.Run]. Watching a log
// may wait for its disk. So Happened passes changes to a goroutine, through a bounded queue that
// has each pod and container at most once. When the queue is full, changes are dropped; a check
// of all running containers finds them within five minutes.
//
// # Faults
//
// If the store fails, a restart forgets when images were last used. If it hangs, it
// delays only the collection of images. If the runtime hangs, a call ends at its
// deadline; until then it delays only the pod whose container is being removed.
type Collection struct {
	cfg        CollectionConfig
	images     *gc.ImageCollector
	containers *gc.ContainerCollector
	logs       *logrotate.Manager // nil if none are rotated
	queue      logQueue

	host    part.Host
	garbage part.Garbage

	mu sync.Mutex
	// stale has the time at which an object of a pod was last removed: earlier observations are
	// outdated.
	stale map[types.UID]time.Time
	held  map[types.UID]*gc.ImageHold // of pods whose worker is running
}

var (
	_ part.Joiner         = (*Collection)(nil)
	_ part.Runner         = (*Collection)(nil)
	_ part.RuntimeWatcher = (*Collection)(nil)
	_ part.Holder         = (*Collection)(nil)
	_ part.Sweeper        = (*Collection)(nil)
)

// NewCollection checks cfg and returns a part.
func NewCollection(cfg CollectionConfig) (*Collection, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("collection: %w", err)
	}
	p := &Collection{cfg: cfg, queue: newLogQueue(), stale: map[types.UID]time.Time{}, held: map[types.UID]*gc.ImageHold{}}
	if err := errors.Join(p.newImages(), p.newContainers(), p.newLogs()); err != nil {
		return nil, fmt.Errorf("collection: %w", err)
	}
	return p, nil
}

func (p *Collection) newImages() (err error) {
	c := &p.cfg
	store := crigc.NewImages(c.Images, c.Runtime)
	conf := gc.ImageConfig{
		Store: store, Policy: c.ImagePolicy, Pins: c.PinnedImages,
		Desired: p.desiredImages, Events: nodeEvents{p}, Memory: c.Store,
		Prune: func(ctx context.Context, present []string, since time.Time) error {
			return p.garbage.PruneImages(ctx, present, since)
		},
		Log: c.Log.Named("imagegc"), Metrics: c.Metrics,
	}
	p.images, err = gc.NewImageCollector(conf)
	return err
}

func (p *Collection) newContainers() (err error) {
	c := &p.cfg
	p.containers, err = gc.NewContainerCollector(gc.ContainerConfig{
		Runtime: crigc.NewContainers(c.Runtime, c.PodLogsDir), Pods: pods{p}, Policy: c.ContainerPolicy,
		PodLogsDir: filepath.Clean(c.PodLogsDir), ContainerLogsDir: c.ContainerLogsDir,
		Events: nodeEvents{p}, Removed: p.removed,
		Log: c.Log.Named("containergc"),
	})
	return err
}

func (p *Collection) newLogs() (err error) {
	c, l := &p.cfg, &p.cfg.Logs
	if l.Off {
		return nil
	}
	p.logs, err = logrotate.New(logrotate.Config{
		Runtime: c.Runtime, MaxSize: l.MaxSize, MaxFiles: l.MaxFiles, PodBudget: l.PodBudget,
		Workers: l.Workers, Longest: l.Longest, Poll: l.Poll, Running: p.runningLogs,
		Log: c.Log.Named("logrotate"),
	})
	return err
}

// nodeEvents records events of the node for the blocks.
type nodeEvents struct{ *Collection }

func (e nodeEvents) Event(eventType, reason, message string) {
	e.host.NodeEvent(eventType, reason, message)
}

// Name implements part.Part.
func (p *Collection) Name() string { return collectionName }

// Join implements part.Joiner.
func (p *Collection) Join(h part.Host) error {
	g, ok := h.(part.Garbage)
	if !ok {
		return fmt.Errorf("the agent (%T) does not implement part.Garbage, which knows the pods that have ended", h)
	}
	if err := part.SetHost(&p.host, h); err != nil {
		return err
	}
	p.garbage = g
	return nil
}

// Run implements part.Runner: it collects until ctx ends. Log rotation and the removal of dead
// containers start when the runtime has been listed, and the removal of images when every source
// has delivered.
func (p *Collection) Run(ctx context.Context) error {
	if !closed(ctx, p.host.Listed()) {
		return nil
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return p.containers.Run(ctx) })
	if p.logs != nil {
		all.Go(func() error { return p.logs.Run(ctx) })
		all.Go(func() error { p.queue.run(ctx, p.logs, p.logsOf); return nil })
	}
	all.Go(func() error {
		if !closed(ctx, p.host.Settled()) {
			return nil
		}
		return p.images.Run(ctx)
	})
	return all.Wait()
}

// closed waits until c is closed. It returns false if ctx ends first.
func closed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}

// Sweep implements part.Sweeper: it removes the log directories of pods that are gone, and broken
// links to logs. The agent decides which pods are gone.
func (p *Collection) Sweep(ctx context.Context, _ func(types.UID) bool) error {
	p.forgetStale(time.Now())
	if _, err := p.containers.Sweep(ctx); err != nil {
		return fmt.Errorf("remove logs of pods that are gone: %w", err)
	}
	return nil
}
