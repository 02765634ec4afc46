package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"

	"github.com/nodewright/nodewright/agent/internal/admit"
	"github.com/nodewright/nodewright/agent/internal/hooks"
	"github.com/nodewright/nodewright/agent/internal/metrics"
	"github.com/nodewright/nodewright/agent/internal/probeperiod"
	"github.com/nodewright/nodewright/agent/internal/probing"
	"github.com/nodewright/nodewright/agent/internal/volumes"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
	"github.com/nodewright/nodewright/volumemgr"
)

// Connects the blocks. If a block needs another block, it gets a function or a small interface
// instead, so that it can also be used alone. Only this file knows all blocks.

// buildBlocks creates every block, in the order of their dependencies, and returns all errors.
func (a *Agent) buildBlocks() error {
	c, log := &a.cfg, a.log.Named
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	store := func(dir, block string) part.Store {
		return part.OpenStore(filepath.Join(c.Paths.Root, dir), log(block))
	}
	var err error
	a.metrics, err = metrics.New(c.Metrics)
	note(err)
	// The guard is created early: values of the embedder are only called through it.
	a.guard = &hooks.Guard{Log: a.log, Panics: a.metrics.Panics}
	a.guard.Expect(append([]string{"events", "sink", "reservation"}, a.hooks.Names...)...)
	a.events = local.NewEventLog(log("event"), c.Node.Name, a.recordingEvents(), func() { a.metrics.Panics.WithLabelValues("events").Inc() })
	a.eventStore = part.OpenVolatileStore(filepath.Join(c.Paths.Root, "events"), log("event"))
	a.node = &fit.Node{
		Tally: &fit.Tally{},
		Name:  c.Node.Name, Labels: c.Node.Labels, LiveLabels: c.Cluster.NodeLabels, Allocatable: c.Node.Allocatable,
		Declared: c.Cluster.NodeResources, UnsafeSysctls: c.Pods.UnsafeSysctls, AppArmor: sync.OnceValue(node.AppArmorEnabled),
		GroupsPolicy: a.facts.handlers.GroupsPolicy, Taints: c.Cluster.NodeTaints, Features: c.Cluster.Features,
	}
	if len(a.hooks.Providers) > 0 {
		a.node.Extended = func() map[v1.ResourceName]part.Count { return a.hooks.Extended(a.guard) }
	}
	// All blocks share one reader. It sees the calls of podruntime, so it knows which inspections
	// can be skipped.
	reader := cri.NewReaderWith(c.Runtime, cri.ReaderConfig{NodeIP: c.Node.PrimaryIP(), Log: log("cri")})
	a.pleg, err = pleg.New(pleg.Config{Runtime: recordedReader{reader, a}, Log: log("pleg"), Metrics: c.Metrics})
	note(err)
	a.pods, err = podmgr.New(podmgr.Config{Sources: a.guard.Sources(c.Sources), Refused: a.refused, Mistakes: a.mistakes, Log: log("podmgr"), Metrics: c.Metrics})
	note(err)
	i := c.Images
	a.images, err = images.New(images.Config{
		Service: i.Service, Events: a.events, QPS: i.QPS, Burst: i.Burst, Parallel: i.Parallel, ParallelPerRegistry: i.ParallelPerRegistry,
		Keyrings: i.Keyrings, Records: filepath.Join(c.Paths.Root, "image_manager"), Verify: i.Verify, Allowlist: i.Allowlist,
		Log: log("images"), Metrics: c.Metrics,
	})
	note(err)
	// Volumes of an embedder replace the whole manager, including its plugins.
	if a.volumes == nil {
		a.volumes, err = volumes.New(volumes.Config{
			Root: c.Paths.Root, Sources: a.pods, Tokens: c.Volumes.Tokens, Bundles: c.Volumes.Bundles, Certificates: c.Volumes.Certificates,
			Plugins: c.Volumes.Plugins, Mounter: c.Volumes.Mounter, BootID: c.Volumes.BootID, Projects: c.Volumes.Projects,
			Node:        func() volumemgr.Here { return volumemgr.Here{Name: c.Node.Name, Labels: a.node.NodeLabels()} },
			Allocatable: c.Node.Allocatable, Events: wantedEvents{a}, Ready: func(uid types.UID) { a.workers.Resync(uid) },
			Log: log("volumemgr"), Metrics: c.Metrics,
		})
		note(err)
	}
	subPaths := c.Volumes.SubPaths
	if subPaths == nil {
		subPaths, err = volumes.NewSubPaths(c.Volumes.Mounter)
		note(err)
	}
	a.runtime, err = podruntime.New(podruntime.Config{
		Runtime: recordedRuntime{a, reader.Noting(c.Runtime)}, Resizer: c.Runtime, Reap: reaper(c.Runtime),
		Images:     recordedImages{a, hooks.Images{Guard: a.guard, Hooks: a.hooks, Images: a.images}},
		PodLogsDir: c.Paths.PodLogs, ContainerLogsDir: c.Paths.ContainerLogs,
		Events:    a.events.AlsoOfNode(podspec.ReasonMissingClusterDNS),
		Lifecycle: hooks.Lifecycle{Guard: a.guard, Hooks: a.hooks}, KeepDead: a.hooks.KeepDead(a.guard),
		SubPaths: subPaths, Cgroups: c.Cgroups, Decide: a.deciding(), Backoff: c.Pods.CrashBackoff,
		HTTPHook: c.Probes.HTTPHook, Memory: store("crashloops", "podruntime"),
		Log: log("podruntime"), Metrics: c.Metrics,
	})
	note(err)
	a.workers, err = podworker.New(podworker.Config{
		Syncer: recordedSyncer{syncer{a}}, Idle: func(uid types.UID) bool { return a.pleg.View(uid).Stopped() }, Finished: a.ended,
		Resync: c.Pods.SyncFrequency, FirstSyncs: c.Pods.StartsInFlight,
		Log: log("podworker"), Metrics: c.Metrics,
	})
	note(err)
	if c.Status.Sink == nil {
		c.Status.Sink, err = statusmgr.NewFileSink(statusmgr.FileSinkConfig{
			Dir: filepath.Join(c.Paths.Root, "status"),
			OnCorrupt: func(file, setAside string, err error) {
				log("statusmgr").Warn("damaged status set aside", zap.String("file", file), zap.String("as", setAside), zap.Error(err))
			},
		})
		note(err)
	}
	a.statuses, err = statusmgr.New(statusmgr.Config{
		Sink: a.guard.Sink(c.Status.Sink), Store: store("unsent", "statusmgr"),
		MaxBackoff: c.Status.MaxBackoff, Log: log("statusmgr"), Metrics: c.Metrics,
	})
	note(err)
	a.probes, err = probe.New(probe.Config{
		Exec: c.Runtime, Answers: a.runtimeAnswers, GRPC: probing.GRPC, Events: a.events, OnChange: a.probed, Published: a.published, Adjust: probeperiod.Adjust,
		Journal:  part.OpenVolatileStore(filepath.Join(c.Paths.Root, "probes"), log("probe")),
		Parallel: c.Probes.Parallel, ParallelExec: c.Probes.ParallelExec, FastStart: c.Probes.Fast, KeepAlive: c.Probes.KeepAlive, Network: c.Probes.Network,
		HostIP: c.Node.PrimaryIP(), Log: log("probe"), Metrics: c.Metrics,
	})
	note(err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	a.admission = &admit.Admission{
		Node: a.node, Hooks: a.hooks, Guard: a.guard, Book: a.book, Pods: a.pods, Workers: a.workers, Phase: a.statuses.Phase,
	}
	return promshare.Register(c.Metrics, metrics.Pods{
		Active: func() []*v1.Pod { return a.admission.Active("") }, Desired: a.pods.Pods, Workers: a.workers.List, Work: a.Work,
	})
}

// mayRun reports whether containers of a rejected pod may be running. A pod without a worker
// runs none, once all sources have delivered; before that, workers do not know every pod.
func (a *Agent) mayRun(uid types.UID) observed.Answer {
	if _, works := a.workers.State(uid); works && a.workers.CouldHaveRunningContainers(uid) {
		return observed.Maybe
	}
	return observed.No
}

// join passes the agent to its parts, in their order. New calls it once. It returns the errors of
// all parts.
func (a *Agent) join() error {
	var errs []error
	for _, p := range a.cfg.Parts {
		if j, ok := p.(part.Joiner); ok {
			if err := a.guard.Call(p.Name(), func() error { return j.Join(host{a}) }); err != nil {
				errs = append(errs, fmt.Errorf("part %s: %w", p.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// background runs fn in a goroutine; Run waits for it. fn has to return soon after its ctx ends.
func (a *Agent) background(ctx context.Context, fn func(context.Context)) {
	a.run.wg.Go(func() { fn(ctx) })
}

// reaper returns the function that kills processes of containers that the runtime no longer tracks.
func reaper(rt criapi.RuntimeService) func(id string) (killed int, err error) {
	if own, ok := rt.(Reaper); ok {
		return own.Reap
	}
	return node.ReapContainer
}
