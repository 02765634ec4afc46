package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/notify"
	"github.com/nodewright/nodewright/eviction/threshold"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// Eviction says when pods are ended for the node's sake. The zero value of
// each field means the default named beside it.
type Eviction struct {
	// Thresholds, by threshold.Parse; none, and only limits of local storage
	// are watched.
	Thresholds []threshold.Threshold
	// Notify wakes it before its time; KernelNotices has those of Linux. None.
	Notify []eviction.Notifier
	// Reclaim frees disks before pods have to; what the agent collects itself.
	Reclaim eviction.Reclaimer
	// Stats reads figures; those of package node/stats.
	Stats eviction.Stats

	// Standalone tells that static pods are all that there are, and that nobody
	// makes another pod of one that was turned away. Static pods are evicted as
	// others are then, but for those with the priority of system pods. One that
	// was evicted begins again when the node is no longer short of anything, and
	// one that may not begin under pressure waits for its end.
	Standalone bool

	// Changed is told, without blocking, that Agent.Pressure has changed; nobody.
	Changed func()

	Transition         time.Duration // for which a condition outlasts its cause; 5m
	MaxPodGraceSeconds int64         // that pods get at a soft threshold, at most; 0
	Victims            int           // that are being evicted at a time; 4
	IgnoreLimits       bool          // of local storage
}

// newEviction makes what watches the node's figures; nothing if it is not
// asked for.
func (a *Agent) newEviction() error {
	e := a.cfg.Eviction
	if e == nil {
		return nil
	}
	figures := e.Stats
	if figures == nil {
		figures = evictionStats{a}
	}
	reclaim := e.Reclaim
	if reclaim == nil {
		reclaim = reclaimer{a.gc}
	}
	cfg := eviction.Config{
		Stats: figures, Kill: a.evict, Thresholds: e.Thresholds, Notify: e.Notify, Reclaim: reclaim,
		Pods:   func() []*v1.Pod { return a.activePods(&v1.Pod{}) },
		Events: evictionEvents{a},
		Changed: func() {
			a.requestCleanup() // pods that wait for the end of pressure are asked about again
			if e.Changed != nil {
				e.Changed()
			}
		},
		Transition: e.Transition, MaxPodGraceSeconds: e.MaxPodGraceSeconds, Victims: e.Victims, IgnoreLimits: e.IgnoreLimits,
		Log: a.cfg.Log.Named("eviction"), Metrics: a.cfg.Metrics,
	}
	if e.Standalone {
		cfg.Critical = func(pod *v1.Pod) bool { return podmeta.IsCritical(withoutSource(pod)) }
	}
	var err error
	a.eviction, err = eviction.New(cfg)
	return err
}

// reclaimer has the agent's collectors free what no pod needs.
type reclaimer struct{ *garbage }

// Containers implements eviction.Reclaimer.
func (r reclaimer) Containers(ctx context.Context) error {
	_, err := r.reclaimContainers(ctx)
	return err
}

// Images implements eviction.Reclaimer.
func (r reclaimer) Images(ctx context.Context) error {
	_, err := r.reclaimImages(ctx, math.MaxInt64)
	return err
}

// withoutSource is a pod as if it came from an API server.
func withoutSource(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Priority: pod.Spec.Priority}}
}

func (a *Agent) runEviction(ctx context.Context) error {
	if a.eviction == nil {
		return nil
	}
	return a.eviction.Run(ctx)
}

// Pressure are the node's conditions of pressure for its status, without a time
// of heartbeat; none if nothing is ever evicted.
func (a *Agent) Pressure() []v1.NodeCondition {
	if a.eviction == nil {
		return nil
	}
	return a.eviction.Conditions()
}

// errNotEnded means that nobody will end a pod any more.
var errNotEnded = errors.New("the agent ends before the pod does")

// end ends a pod within a grace of its own and returns when its containers have
// been proven to have stopped.
func (a *Agent) end(ctx context.Context, pod *v1.Pod, grace int64, evict bool, status func(*v1.PodStatus)) error {
	done := make(chan struct{})
	a.workers.Update(podworker.Update{
		Type: podworker.KillUpdate, Pod: pod, Start: time.Now(),
		Kill: &podworker.KillOptions{Done: done, Evict: evict, Status: status, GracePeriodSeconds: &grace},
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	}
	if a.workers.CouldHaveRunningContainers(pod.UID) {
		return errNotEnded
	}
	return nil
}

// evict is an eviction.KillFunc.
func (a *Agent) evict(ctx context.Context, pod *v1.Pod, grace int64, status func(*v1.PodStatus)) error {
	return a.end(ctx, pod, grace, true, status)
}

// evictionEvents hands events of evictions on.
type evictionEvents struct{ *Agent }

// AnnotatedRecorder is what an [EventRecorder] may be beside: it takes the
// annotations of events too. Evictions have some, by which tools tell what the
// pod used.
type AnnotatedRecorder interface {
	AnnotatedEvent(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
}

func (e evictionEvents) Pod(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	next, ok := e.cfg.Events.(AnnotatedRecorder)
	if !ok || len(annotations) == 0 {
		e.events.Event(pod, eventType, reason, message)
		return
	}
	e.events.remember(pod, eventType, reason, message, time.Now())
	next.AnnotatedEvent(pod, annotations, eventType, reason, message)
}

func (e evictionEvents) Node(eventType, reason, message string) {
	e.nodeEvents.Event(eventType, reason, message)
}

// pressureWait is how long a pod waits for the end of pressure, where nobody
// would make another one: for as long as somebody may need to look after it.
const pressureWait = 24 * time.Hour

// pressure is the Admitter that turns pods away from a node that is short of
// something.
type pressure struct{ *Agent }

// Admit implements Admitter.
func (p pressure) Admit(pod *v1.Pod, _ []*v1.Pod) *Rejection {
	if p.eviction == nil {
		return nil
	}
	no := p.eviction.Admit(pod)
	if no == nil {
		return nil
	}
	r := &Rejection{Reason: no.Reason, Message: no.Message}
	if p.cfg.Eviction.Standalone && podmeta.IsStatic(pod) {
		r.RetryUntil = time.Now().Add(pressureWait)
	}
	return r
}

// KernelNotices are what the kernel tells of memory running short, for
// Eviction.Notify: stalls of the whole node (PSI), and of the cgroup of all
// pods its stalls and limits (cgroup v2), or levels of use (cgroup v1). The
// latter are for thresholds of allocatable memory; podsCgroup is "" if there is
// no such cgroup.
func KernelNotices(podsCgroup string, thresholds []threshold.Threshold) []eviction.Notifier {
	const cgroups, pressure = "/sys/fs/cgroup", "/proc/pressure/memory"
	about := func(s threshold.Signal) bool {
		return slices.ContainsFunc(thresholds, func(t threshold.Threshold) bool { return t.Signal == s })
	}
	var out []eviction.Notifier
	add := func(s threshold.Signal, triggers ...notify.Trigger) {
		out = append(out, eviction.Notifier{Source: notify.New(triggers...), Signal: s})
	}
	v2 := CgroupV2()
	if about(threshold.Memory) {
		if v2 {
			add(threshold.Memory, notify.PSI(pressure, 0, 0))
		} else {
			add(threshold.Memory, notify.PSI(pressure, 0, 0), notify.Usage(filepath.Join(cgroups, "memory")))
		}
	}
	if about(threshold.AllocatableMemory) && podsCgroup != "" {
		if v2 {
			add(threshold.AllocatableMemory, notify.PSI(filepath.Join(cgroups, podsCgroup, "memory.pressure"), 0, 0),
				notify.Events(filepath.Join(cgroups, podsCgroup, "memory.events")))
		} else {
			add(threshold.AllocatableMemory, notify.Usage(filepath.Join(cgroups, "memory", podsCgroup)))
		}
	}
	return out
}

// clamp turns an unsigned number into one that can be compared.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// uids are the UIDs of pods.
func uids(pods []*v1.Pod) func(types.UID) bool {
	set := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		set[p.UID] = true
	}
	return func(uid types.UID) bool { return set[uid] }
}

// size writes a number in units of a signal for people.
func size(s threshold.Signal, n int64) string {
	switch s.Resource() {
	case threshold.Inodes, threshold.Pids:
		return fmt.Sprint(n)
	default:
		return bytesOf(n)
	}
}
