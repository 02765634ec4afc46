package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/gc/containergc"
	"github.com/nodewright/nodewright/gc/imagegc"
	"github.com/nodewright/nodewright/gc/logrotate"
	"github.com/nodewright/nodewright/gc/overcri"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// GC says what is removed of images, dead containers and logs, and when. Its
// zero value is the kubelet's way.
type GC struct {
	// Images says when images go; imagegc.DefaultPolicy().
	Images *imagegc.Policy
	// PinnedImages are names of images that stay, and PinnedImageLabels labels,
	// key or key=value, of such, beside those that the runtime pins: see
	// imagegc.Config. Labels cost a call for each image that is new.
	PinnedImages, PinnedImageLabels []string
	// Containers says how many dead containers stay;
	// containergc.DefaultPolicy().
	Containers *containergc.Policy
	// Logs says when logs are rotated.
	Logs LogRotation
}

// LogRotation says when the logs of containers are rotated. The zero value of
// a field means the default named beside it.
type LogRotation struct {
	// Off leaves logs as they are.
	Off bool
	// MaxSize is the size in bytes from which a log is rotated, MaxFiles how
	// many files a container has at most; 10 MiB and 5.
	MaxSize  int64
	MaxFiles int
	// PodBudget bounds the bytes of all logs of a pod; 0 does not.
	PodBudget int64
	// Workers is how many rotated logs are compressed at a time; 1.
	Workers int
	// Longest is the longest time between two looks at a log that grows; 10s.
	Longest time.Duration
	// Poll has logs at rest looked at that often too, instead of having the
	// kernel tell of writes to them.
	Poll bool
}

// garbage has images, dead containers and old logs go, and nothing that a pod
// needs that runs or is being started.
type garbage struct {
	a          *Agent
	images     *imagegc.Manager
	containers *containergc.Manager
	logs       *logrotate.Manager // nil if none are rotated

	ready     chan struct{} // closed when all sources have spoken
	readyOnce sync.Once

	mu sync.Mutex
	// stale is when something of a pod was removed: what was observed of it
	// before is out of date.
	stale map[types.UID]time.Time
	holds map[types.UID]*imagegc.Hold // of the pods that are being synced
}

// newGarbage makes the collectors. The agent's other blocks need not be there
// yet.
func newGarbage(a *Agent) (*garbage, error) {
	c := &a.cfg
	g := &garbage{a: a, ready: make(chan struct{}), stale: map[types.UID]time.Time{}, holds: map[types.UID]*imagegc.Hold{}}
	var errs [3]error
	store := overcri.NewImages(c.Images, c.Runtime)
	store.Labels = len(c.GC.PinnedImageLabels) > 0
	g.images, errs[0] = imagegc.New(imagegc.Config{
		Store: store, Policy: c.GC.Images, Pins: c.GC.PinnedImages, PinLabels: c.GC.PinnedImageLabels,
		Desired: a.desiredImages, Events: a.nodeEvents,
		Prune: func(ctx context.Context, present []string, since time.Time) error {
			return a.images.Prune(ctx, present, since)
		},
		Memory: &lazyStore{dir: filepath.Join(c.RootDir, "imagegc"), log: c.Log.Named("imagegc")},
		Log:    c.Log.Named("imagegc"), Metrics: c.Metrics,
	})
	g.containers, errs[1] = containergc.New(containergc.Config{
		Runtime: overcri.NewContainers(c.Runtime, c.PodLogsDir), Pods: gcPods{a}, Policy: c.GC.Containers,
		PodLogsDir: filepath.Clean(c.PodLogsDir), ContainerLogsDir: c.ContainerLogsDir,
		Events: a.nodeEvents, Removed: g.removed,
		Log: c.Log.Named("containergc"), Metrics: c.Metrics,
	})
	if l := c.GC.Logs; !l.Off {
		g.logs, errs[2] = logrotate.New(logrotate.Config{
			Runtime: c.Runtime, MaxSize: l.MaxSize, MaxFiles: l.MaxFiles, PodBudget: l.PodBudget,
			Workers: l.Workers, Longest: l.Longest, Poll: l.Poll, Running: a.runningLogs,
			Log: c.Log.Named("logrotate"), Metrics: c.Metrics,
		})
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("GC: %w", err)
	}
	return g, nil
}

// run collects until ctx ends. Logs are rotated, and dead containers removed,
// once it is known what runs; images once it is known what is to run.
func (g *garbage) run(ctx context.Context) error {
	if !closed(ctx, g.a.pleg.Listed()) {
		return nil
	}
	all, actx := errgroup.WithContext(ctx)
	all.Go(func() error { return g.containers.Run(actx) })
	if g.logs != nil {
		all.Go(func() error { return g.logs.Run(actx) })
	}
	all.Go(func() error {
		if !closed(actx, g.ready) {
			return nil
		}
		return g.images.Run(actx)
	})
	return all.Wait()
}

// closed waits until c is closed. It is false if ctx ends before.
func closed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}

// allKnown tells that all sources have spoken.
func (g *garbage) allKnown() { g.readyOnce.Do(func() { close(g.ready) }) }

// happened takes what changed in the runtime. It does not block.
func (g *garbage) happened(ev pleg.Event) {
	died := false
	for _, c := range ev.Changes {
		switch c.Type {
		case pleg.ContainerDied, pleg.ContainerRemoved:
			died = died || c.Type == pleg.ContainerDied
			if g.logs != nil && !c.Sandbox {
				g.logs.Forget(c.ID)
			}
		}
	}
	if died {
		g.containers.Died(ev.UID)
	}
	if g.logs != nil {
		logs, _ := g.a.logsOf(ev.UID) // of one that cannot be looked at, later
		for _, l := range logs {
			g.logs.Watch(l)
		}
	}
}

// logsOf are the logs of a pod's containers that run, as far as is known.
func (a *Agent) logsOf(uid types.UID) ([]logrotate.Log, error) {
	obs, err := a.pleg.Get(uid)
	if err != nil {
		return nil, err
	}
	var out []logrotate.Log
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.State == observed.Running {
			out = append(out, logrotate.Log{ID: c.ID, Pod: uid, Path: c.LogPath})
		}
	}
	return out, nil
}

// runningLogs are the logs of all containers that run. One pod that the
// runtime does not tell of leaves the others' to be looked after: the list is
// then not whole, which would have logs forgotten, and so an error.
func (a *Agent) runningLogs(context.Context) ([]logrotate.Log, error) {
	var out []logrotate.Log
	for _, p := range a.pleg.Pods() {
		logs, err := a.logsOf(p.UID)
		if err != nil {
			return nil, err
		}
		out = append(out, logs...)
	}
	return out, nil
}

// sweep removes the log directories of pods that are gone, and links to logs
// that are not there any more.
func (g *garbage) sweep(ctx context.Context) {
	_, err := g.containers.Sweep(ctx)
	g.a.logged("logs of pods that are gone stay", err)
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid, at := range g.stale {
		if time.Since(at) > staleFor {
			delete(g.stale, uid)
		}
	}
}

// staleFor is when the runtime has been listed anew whatever happened.
const staleFor = 10 * time.Minute

// reclaimImages removes images that may go until so many bytes more are free,
// and returns how many are.
func (g *garbage) reclaimImages(ctx context.Context, bytes int64) (freed int64, err error) {
	return g.images.Reclaim(ctx, bytes)
}

// reclaimContainers removes what dead containers leave, and all that is left
// of pods that are over. It returns how many things went.
func (g *garbage) reclaimContainers(ctx context.Context) (removed int, err error) {
	return g.containers.Reclaim(ctx)
}

// keepDead is how many dead instances of a container podruntime is to leave: a
// policy with a minimum age is for the collector alone.
func (g GC) keepDead() int {
	p := containergc.DefaultPolicy()
	if g.Containers != nil {
		p = *g.Containers
	}
	if p.MinAge > 0 || p.MaxPerContainer < 0 {
		return -1
	}
	return max(1, p.MaxPerContainer)
}

// gcPods tells containergc of pods.
type gcPods struct{ *Agent }

// Ready tells whether all sources have spoken.
func (a gcPods) Ready() bool { return a.pods.AllReady() }

// State tells how much of a pod is still wanted.
func (a gcPods) State(uid types.UID) containergc.PodState {
	w, known := a.workers.State(uid)
	wanted := a.wanted(uid)
	switch {
	case known && w.Kind != podworker.Terminated:
		return containergc.Live
	case (known || !wanted) && a.workers.ShouldContentBeRemoved(uid):
		return containergc.Deleted
	case known:
		return containergc.Terminated
	}
	if ph, ok := a.statuses.Phase(uid); ok && podmeta.IsTerminal(ph) {
		return containergc.Terminated // it was turned away
	}
	return containergc.Live
}

// desiredImages are the images that pods name which are to run here.
func (a *Agent) desiredImages() []string {
	var out []string
	for _, p := range a.pods.Pods() {
		if podmeta.IsTerminal(p.Status.Phase) || a.workers.KnownTerminated(p.UID) {
			continue
		}
		if ph, ok := a.statuses.Phase(p.UID); ok && podmeta.IsTerminal(ph) {
			continue
		}
		out = append(out, imagesOf(&p.Spec)...)
	}
	return out
}

func imagesOf(spec *v1.PodSpec) []string {
	var out []string
	for i := range spec.InitContainers {
		out = append(out, spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		out = append(out, spec.Containers[i].Image)
	}
	for i := range spec.EphemeralContainers {
		out = append(out, spec.EphemeralContainers[i].Image)
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil && v.Reference != "" {
			out = append(out, v.Reference)
		}
	}
	return out
}
