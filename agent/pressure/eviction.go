package pressure

import (
	"context"
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
	"github.com/nodewright/nodewright/record"
)

// evictionName is the name of the part.
const evictionName = "eviction"

// EvictionConfig configures evictions. Stats is required. Every other field has a default for its
// zero value.
type EvictionConfig struct {
	// Stats measures the usage; [Stats.ForEviction] implements it.
	Stats block.Stats
	// Thresholds are eviction thresholds, as parsed by rank.Parse. If there are none, only limits
	// of local storage are enforced.
	Thresholds []rank.Threshold
	// Signals are signals for Thresholds in addition to those of package rank.
	Signals []block.Signal
	// Notify are notifiers that report pressure before the next measurement. [KernelNotices]
	// returns the notifiers of Linux.
	Notify []block.Notifier
	// Reclaim frees disk space before pods are evicted. [Collection.Reclaimer] implements it. If
	// it is nil, nothing is reclaimed.
	Reclaim block.Reclaimer

	// Standalone means that all pods are static and that no controller replaces a rejected pod.
	// Static pods are then evicted too, except those with the priority of system pods. An evicted
	// pod starts again when the node is under no pressure. A pod that is not admitted under
	// pressure waits for the end of the pressure.
	Standalone bool
	// Hold reports whether evicted pods must not start again now, for example because of a
	// shutdown. It is called on the loop and must not block. If it is nil, evicted pods may
	// always start again.
	Hold func() bool

	// Changed is called, from any goroutine, when the result of Pressure has changed. It must not
	// block. It may be nil.
	Changed func()

	Transition         time.Duration // how long a condition stays after the pressure is over; the default is 5 min
	MaxPodGraceSeconds int64         // longest grace period at a soft threshold; a negative number means the pod's own
	Victims            int           // concurrent evictions for each resource; the default is 4
	IgnoreLimits       bool          // of local storage

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
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

// Eviction is the part that evicts pods when the node runs short of memory, disk space
// or process IDs, or when they exceed a limit of local storage.
//
//	p, err := pressure.NewEviction(pressure.EvictionConfig{
//		Thresholds: thresholds, Stats: stats.ForEviction(), Reclaim: pressure.Reclaimer(),
//		Notify: pressure.KernelNotices("kubepods", v2, thresholds),
//		Hold:   func() bool { return shutdown.ShuttingDown() != nil },
//	})
//	parts := []part.Part{stats, collection, shutdown, p}
//	conditions := p.Pressure() // for the node's status
//
// Package github.com/nodewright/nodewright/eviction decides; this part connects it to
// an agent.
//
// Its methods may be called from any goroutine, once an agent has it.
//
// # Hooks
//
// Admit rejects pods while the node is under pressure. If all pods are static
// (EvictionConfig.Standalone), they wait for the end of the pressure instead, and Over makes an
// evicted pod start again: when the node is under no pressure, and its back-off is over. The
// back-off is 10 s, doubles with each eviction up to 5 min, and starts at 10 s again after 10 min
// without an eviction, as for crashing containers. Explain says for which of the two the pod
// waits. ExplainNode says how far the node is from its thresholds. Housekeep drops the state of
// pods that are gone. Run measures the usage and evicts pods.
//
// # Ownership
//
// [NewEviction] has no side effects. All goroutines and timers end with [Eviction.Run],
// which abandons running evictions. Hooks on the loop read only memory. If a measurement, a
// reclaim or the end of a pod hangs, only the goroutine for that resource waits.
//
// # Faults
//
// The part stores nothing over a restart of the agent. A pod that an earlier agent has
// evicted starts again after the first back-off, which begins with the first call of
// Over for the pod.
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

// NewEviction checks cfg and returns a part.
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

// withoutSource returns a copy of a pod that looks like a pod of an API server.
func withoutSource(pod *v1.Pod) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Priority: pod.Spec.Priority}}
}

// Name implements part.Part.
func (p *Eviction) Name() string { return evictionName }

// Join implements part.Joiner.
func (p *Eviction) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Run implements part.Runner: it measures usage and evicts pods.
func (p *Eviction) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var timers sync.WaitGroup
	defer timers.Wait()
	defer cancel()
	timers.Go(func() { p.backoffs.run(ctx, p.host.Housekeep) })
	return p.block.Run(ctx)
}

// kill terminates a pod; it is a block.KillFunc.
func (p *Eviction) kill(ctx context.Context, pod *v1.Pod, cause podlife.Cause) error {
	return p.host.End(ctx, pod, cause)
}

// freed reports whether the disk space of an evicted pod is free: its worker has unmounted its
// volumes and removed its directory, or does not exist any more.
func (p *Eviction) freed(uid types.UID) bool {
	w, ok := p.host.Worker(uid)
	return !ok || w.Finished
}

// changed handles a change of pressure: the agent decides again on waiting pods, and evicted pods
// may start again.
func (p *Eviction) changed() {
	for _, c := range p.block.Conditions() {
		part.Record(p.host, record.Entry{Fact: record.ConditionOf(c)})
	}
	p.host.Readmit()
	p.host.Housekeep()
	p.cfg.Changed()
}

// events records the events of evictions.
type events struct{ *Eviction }

// Pod implements block.Events.
func (e events) Pod(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	e.host.Event(pod, annotations, eventType, reason, message)
}

// Node implements block.Events.
func (e events) Node(eventType, reason, message string) { e.host.NodeEvent(eventType, reason, message) }

// Pressure returns the node's pressure conditions for its status, without heartbeat times. The
// caller may change the slice.
func (p *Eviction) Pressure() []v1.NodeCondition { return p.block.Conditions() }

func (p *Eviction) underPressure() bool {
	for _, c := range p.block.Conditions() {
		if c.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// pressureWait is how long a static pod waits for the end of pressure if no controller would
// replace it: long enough for a person to act.
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
