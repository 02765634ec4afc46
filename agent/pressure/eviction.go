package pressure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	block "github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// evictionName is the name of the part.
const evictionName = "eviction"

// EvictionConfig defines when pods are ended for the node's sake. Stats is required; the
// zero value of every other field means the default named beside it.
type EvictionConfig struct {
	// Stats reads figures; [Stats.ForEviction] is such a source.
	Stats block.Stats
	// Thresholds, by rank.Parse; none, and only limits of local storage
	// are watched.
	Thresholds []rank.Threshold
	// Signals are figures of one's own beside those of package rank, for Thresholds; none.
	Signals []block.Signal
	// Notify wakes it ahead of time; KernelNotices has those of Linux. None.
	Notify []block.Notifier
	// Reclaim frees disks before pods have to end; [Collection.Reclaimer] is one.
	// Nothing is reclaimed.
	Reclaim block.Reclaimer

	// Standalone says that all pods are static, and that nobody makes another pod
	// of one that was rejected. Static pods are evicted as others are then, but
	// for those with the priority of system pods. One that was evicted begins
	// again when the node is under no pressure, and one that may not begin under
	// pressure waits for its end.
	Standalone bool
	// Hold reports whether pods that were evicted must not begin again now, as
	// while the machine shuts down. It is called on the loop and must not block;
	// nil is never.
	Hold func() bool

	// Changed is called, from any goroutine, when Part.Pressure has changed. It
	// must not block; nil: nothing is.
	Changed func()

	Transition         time.Duration // for which a condition outlasts its cause; 5m
	MaxPodGraceSeconds int64         // that pods get at a soft threshold, at most; 0; below 0, their own
	Victims            int           // evictions under way at a time, for each resource; 4
	IgnoreLimits       bool          // of local storage

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

func (c EvictionConfig) withDefaults() EvictionConfig {
	if c.Hold == nil {
		c.Hold = func() bool { return false }
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Eviction is the part that ends pods when the node runs
// short of memory, disk or processes, or when they exceed a limit of local
// storage.
//
//	p, err := pressure.NewEviction(pressure.EvictionConfig{
//		Thresholds: thresholds, Stats: stats.ForEviction(), Reclaim: pressure.Reclaimer(),
//		Notify: pressure.KernelNotices("kubepods", v2, thresholds),
//		Hold:   func() bool { return shutdown.ShuttingDown() != nil },
//	})
//	parts := []part.Part{stats, collection, shutdown, p}
//	conditions := p.Pressure() // for the node's status
//
// Package github.com/nodewright/nodewright/eviction decides; this one connects it
// to an agent.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Admit rejects pods while the node is under pressure; where all pods are static
// (EvictionConfig.Standalone) they wait for its end instead. Over has a static pod that
// was evicted there begin again: when the node is under no pressure, and after a
// back-off of 10 s that doubles up to 5 min with each eviction and starts anew
// after 10 min without one, as for containers that crash. Explain says which of
// the two the pod waits for, ExplainNode how far the node is from its thresholds. Housekeep forgets pods that are gone. Run watches.
//
// # Ownership
//
// [NewEviction] has no side effects. All goroutines and timers end with [Eviction.Run], and
// evictions under way are given up then. Hooks on the loop read memory alone:
// whatever hangs (figures, reclaiming, the end of a pod) holds up the goroutine
// that watches that resource and nobody else.
//
// # Faults
//
// Nothing is kept over a restart. A pod that was evicted by an agent before this
// one begins again after the first back-off. The back-off counts from when
// Over was asked about the pod first.
type Eviction struct {
	cfg      EvictionConfig
	block    *block.Manager
	host     part.Host
	backoffs backoffs
}

var (
	_ part.Joiner      = (*Eviction)(nil)
	_ part.Runner      = (*Eviction)(nil)
	_ part.Admitter    = (*Eviction)(nil)
	_ part.Reviver     = (*Eviction)(nil)
	_ part.Housekeeper = (*Eviction)(nil)
	_ part.Explainer   = (*Eviction)(nil)

	_ part.NodeExplainer = (*Eviction)(nil)
)

// NewEviction checks cfg and returns a Part at rest.
func NewEviction(cfg EvictionConfig) (*Eviction, error) {
	cfg = cfg.withDefaults()
	p := &Eviction{cfg: cfg, backoffs: newBackoffs()}
	c := block.Config{
		Stats: cfg.Stats, Kill: p.kill, Freed: p.freed, Thresholds: cfg.Thresholds, Signals: cfg.Signals, Notify: cfg.Notify, Reclaim: cfg.Reclaim,
		Pods: func() []*v1.Pod { return p.host.ActivePods() }, Events: events{p}, Changed: p.changed,
		Transition: cfg.Transition, MaxPodGraceSeconds: cfg.MaxPodGraceSeconds, Victims: cfg.Victims, IgnoreLimits: cfg.IgnoreLimits,
		Log: cfg.Log, Metrics: cfg.Metrics,
	}
	if cfg.Standalone {
		c.Critical = func(pod *v1.Pod) bool { return podmeta.IsCritical(withoutSource(pod)) }
	}
	var err error
	p.block, err = block.New(c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// withoutSource is a pod as if it came from an API server.
func withoutSource(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Priority: pod.Spec.Priority}}
}

// Name implements part.Part.
func (p *Eviction) Name() string { return evictionName }

// Join implements part.Joiner.
func (p *Eviction) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("eviction: the part belongs to another agent already")
	}
	p.host = h
	return nil
}

// Run implements part.Runner: it watches and evicts.
func (p *Eviction) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var timers sync.WaitGroup
	defer timers.Wait()
	defer cancel()
	timers.Go(func() { p.backoffs.run(ctx, p.host.Housekeep) })
	return p.block.Run(ctx)
}

// kill is a block.KillFunc.
func (p *Eviction) kill(ctx context.Context, pod *v1.Pod, why podlife.Cause) error {
	return p.host.End(ctx, pod, why)
}

// freed reports whether nothing of a pod that was ended is mounted or in a directory any more: its worker
// has unmounted its volumes, or is gone.
func (p *Eviction) freed(uid types.UID) bool {
	w, ok := p.host.Worker(uid)
	return !ok || w.Finished
}

// changed follows a change of pressure: pods that wait for its end are asked
// about again, those that were evicted may begin again.
func (p *Eviction) changed() {
	p.host.Readmit()
	p.host.Housekeep()
	p.cfg.Changed()
}

// events hands the events of evictions on.
type events struct{ *Eviction }

// Pod implements block.Events.
func (e events) Pod(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	e.host.Event(pod, annotations, eventType, reason, message)
}

// Node implements block.Events.
func (e events) Node(eventType, reason, message string) { e.host.NodeEvent(eventType, reason, message) }

// Pressure returns the node's conditions of pressure for its status, without a
// time of heartbeat. The slice is the caller's.
func (p *Eviction) Pressure() []v1.NodeCondition { return p.block.Conditions() }

func (p *Eviction) underPressure() bool {
	for _, c := range p.block.Conditions() {
		if c.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// pressureWait is how long a static pod waits for the end of pressure where
// nobody would make another one: long enough for a person to look after it.
const pressureWait = 24 * time.Hour

// Admit implements part.Admitter.
func (p *Eviction) Admit(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
	no := p.block.Admit(pod)
	if no == nil {
		return nil
	}
	r := &part.Rejection{Reason: no.Reason, Message: no.Message, Final: true}
	if p.cfg.Standalone && podmeta.IsStatic(pod) {
		r.RetryUntil = time.Now().Add(pressureWait)
	}
	return r
}
