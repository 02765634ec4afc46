package eviction

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	block "github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/threshold"
	"github.com/nodewright/nodewright/podmeta"
)

// Name is the name of the part.
const Name = "eviction"

// Config defines when pods are ended for the node's sake. Stats is required; the
// zero value of every other field means the default named beside it.
type Config struct {
	// Stats reads figures; agent/stats has it by ForEviction.
	Stats block.Stats
	// Thresholds, by threshold.Parse; none, and only limits of local storage
	// are watched.
	Thresholds []threshold.Threshold
	// Notify wakes it ahead of time; KernelNotices has those of Linux. None.
	Notify []block.Notifier
	// Reclaim frees disks before pods have to end; agent/collection has one.
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

func (c Config) withDefaults() Config {
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

// Part evicts. Its methods may be called from any goroutine, once an agent has
// it.
type Part struct {
	cfg      Config
	block    *block.Manager
	host     part.Host
	backoffs backoffs
}

var (
	_ part.Joiner      = (*Part)(nil)
	_ part.Runner      = (*Part)(nil)
	_ part.Admitter    = (*Part)(nil)
	_ part.Reviver     = (*Part)(nil)
	_ part.Housekeeper = (*Part)(nil)
	_ part.Explainer   = (*Part)(nil)
)

// New checks cfg and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	cfg = cfg.withDefaults()
	p := &Part{cfg: cfg, backoffs: newBackoffs()}
	c := block.Config{
		Stats: cfg.Stats, Kill: p.kill, Thresholds: cfg.Thresholds, Notify: cfg.Notify, Reclaim: cfg.Reclaim,
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
func (p *Part) Name() string { return Name }

// Join implements part.Joiner.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("eviction: the part belongs to another agent already")
	}
	p.host = h
	return nil
}

// Run implements part.Runner: it watches and evicts.
func (p *Part) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var timers sync.WaitGroup
	defer timers.Wait()
	defer cancel()
	timers.Go(func() { p.backoffs.run(ctx, p.host.Housekeep) })
	return p.block.Run(ctx)
}

// kill is a block.KillFunc.
func (p *Part) kill(ctx context.Context, pod *v1.Pod, grace int64, status func(*v1.PodStatus)) error {
	return p.host.End(ctx, pod, part.End{GraceSeconds: grace, Evict: true, Status: status})
}

// changed follows a change of pressure: pods that wait for its end are asked
// about again, those that were evicted may begin again.
func (p *Part) changed() {
	p.host.Readmit()
	p.host.Housekeep()
	p.cfg.Changed()
}

// events hands the events of evictions on.
type events struct{ *Part }

// Pod implements block.Events.
func (e events) Pod(pod *v1.Pod, annotations map[string]string, eventType, reason, message string) {
	e.host.Event(pod, annotations, eventType, reason, message)
}

// Node implements block.Events.
func (e events) Node(eventType, reason, message string) { e.host.NodeEvent(eventType, reason, message) }

// Pressure returns the node's conditions of pressure for its status, without a
// time of heartbeat. The slice is the caller's.
func (p *Part) Pressure() []v1.NodeCondition { return p.block.Conditions() }

func (p *Part) underPressure() bool {
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
func (p *Part) Admit(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
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
