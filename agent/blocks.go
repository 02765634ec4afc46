package agent

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/pleg"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podspec"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/podworker"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// buildBlocks makes every block and plugs them into each other.
func (a *Agent) buildBlocks() error {
	c := &a.cfg
	var errs [15]error
	a.metrics, errs[0] = newMetrics(c.Metrics)
	a.placement, errs[10] = newPlacement(c, a.requestCleanup)
	a.decisions, errs[11] = newDecisions(c)
	a.plugins, errs[12] = a.newPlugins()
	a.prepares = newPrepares(a.sweeps.Go)
	a.grants = newGrants(c.RootDir, c.Log.Named("resize"), a.metrics)
	a.reader = cri.NewReader(c.Runtime)
	a.pleg, errs[1] = pleg.New(pleg.Config{Runtime: a.reader, Log: c.Log.Named("pleg"), Metrics: c.Metrics})
	a.pods, errs[2] = podmgr.New(podmgr.Config{Sources: c.Sources, Log: c.Log.Named("podmgr"), Metrics: c.Metrics})
	a.useDRA()
	a.podResources, errs[13] = a.newPodResources()
	a.images, errs[3] = images.New(images.Config{
		Service: c.Images, Events: a.events, QPS: c.PullQPS, Burst: c.PullBurst,
		Parallel: c.ParallelPulls, ParallelPerRegistry: c.ParallelPullsPerRegistry, Keyrings: c.Keyrings,
		Records: filepath.Join(c.RootDir, "image_manager"), Verify: c.VerifyPulls, Allowlist: c.PullAllowlist,
		Log: c.Log.Named("images"), Metrics: c.Metrics,
	})
	a.gc, errs[14] = newGarbage(a)
	if a.volumes == nil {
		a.volumes, errs[8] = a.newVolumes()
	}
	subPaths, err := newParts()
	errs[9] = err
	a.runtime, errs[4] = podruntime.New(podruntime.Config{
		Runtime: a.preparing(a.placement.around(c.Runtime)), Images: imageAdapter{a}, PodLogsDir: c.PodLogsDir, ContainerLogsDir: c.ContainerLogsDir, Events: a.events,
		Resizer: c.Runtime, SubPaths: subPaths, Cgroups: c.Cgroups, KeepDead: c.GC.keepDead(),
		Reap:    func(id string) (int, error) { return reap(cgroupRoots(), id) },
		Backoff: c.CrashBackoff, MaxCrashBackoff: c.MaxCrashBackoff,
		Memory: &lazyStore{dir: filepath.Join(c.RootDir, "crashloops"), log: c.Log.Named("podruntime")},
		Log:    c.Log.Named("podruntime"), Metrics: c.Metrics,
	})
	a.workers, errs[5] = podworker.New(podworker.Config{
		Syncer: heldSyncer{syncer{a}, a.gc}, Idle: a.idle, Resync: c.SyncFrequency, FirstSyncs: c.StartsInFlight,
		Log: c.Log.Named("podworker"), Metrics: c.Metrics,
	})
	a.statuses, errs[6] = statusmgr.New(statusmgr.Config{
		Sink: c.Sink, Store: &lazyStore{dir: filepath.Join(c.RootDir, "unsent"), log: c.Log.Named("statusmgr")},
		CouldHaveRunning: func(uid types.UID) bool { return a.workers.CouldHaveRunningContainers(uid) },
		PublishAs:        a.publishedAs,
		MaxBackoff:       c.MaxPublishBackoff,
		Log:              c.Log.Named("statusmgr"), Metrics: c.Metrics,
	})
	a.probes, errs[7] = probe.New(probe.Config{
		Exec: c.Runtime, GRPC: grpcHealth, Events: a.events, OnChange: a.probed, Adjust: adjustProbe,
		Journal:  &lazyStore{dir: filepath.Join(c.RootDir, "probes"), log: c.Log.Named("probe"), noSync: true},
		Parallel: c.ParallelProbes, ParallelExec: c.ParallelExecProbes, FastStart: c.FastProbes, KeepAlive: c.ProbeKeepAlive,
		HostIP: hostIP(&c.Node), Log: c.Log.Named("probe"), Metrics: c.Metrics,
	})
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return errors.Join(a.newStats(), a.newEviction(), a.newOOM(), a.newShutdown())
}

// idle tells that the runtime is known to run nothing of a pod.
func (a *Agent) idle(uid types.UID) bool {
	select {
	case <-a.pleg.Listed():
	default:
		return false
	}
	obs, err := a.pleg.Get(uid)
	return err == nil && !obs.AnyRunning()
}

// nodeFacts are what pods are compiled with.
func (a *Agent) nodeFacts() podspec.Node {
	n := &a.cfg.Node
	return podspec.Node{
		Name: n.Name, IPs: n.IPs, Capacity: n.Capacity, Allocatable: n.Allocatable,
		CgroupV2: a.cgroupV2, ResolvConf: a.files.resolv(), HostsFile: a.files.hosts(),
		ClusterDomain: a.cfg.ClusterDomain, ClusterDNS: a.cfg.ClusterDNS,
		PodLogsDir: a.cfg.PodLogsDir, SeccompDefault: a.cfg.SeccompDefault,
		NoCPUQuota: a.cfg.NoCPUQuota, CPUPeriod: a.cfg.CPUPeriod, SingleProcessOOMKill: a.cfg.SingleProcessOOMKill,
	}
}

// wasRejected tells of the status of a pod that was turned away.
func wasRejected(st *v1.PodStatus) bool {
	return st.Phase == v1.PodFailed && strings.HasPrefix(st.Message, rejectedMessage) && len(st.ContainerStatuses) == 0
}

const rejectedMessage = "Pod was rejected: "

// rejectedStatus is the status of a pod that was turned away.
func rejectedStatus(pod *v1.Pod, r Rejection) v1.PodStatus {
	st := podstatus.Of(podstatus.Input{Pod: pod, NeedsSandbox: true})
	st.Phase, st.Reason, st.Message = v1.PodFailed, r.Reason, rejectedMessage+r.Message
	st.ContainerStatuses, st.InitContainerStatuses, st.Conditions = nil, nil, nil
	st.AllocatedResources, st.Resources = nil, nil
	return st
}

// services are those that the environment of a namespace's pods tells of: its
// own, and the one of the API server.
func (a *Agent) services(namespace string) []*v1.Service {
	if a.cfg.Services == nil {
		return nil
	}
	return slices.DeleteFunc(a.cfg.Services(), func(s *v1.Service) bool {
		return s.Namespace != namespace && (s.Namespace != metav1.NamespaceDefault || s.Name != "kubernetes")
	})
}
