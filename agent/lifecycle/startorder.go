package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/podmeta"
)

// startOrderName is the name of the part.
const startOrderName = "startorder"

// Reasons of a waiting pod, and of the event about ignored names.
const (
	ReasonStartOrder        = "StartOrder"
	ReasonStartOrderIgnored = "StartOrderIgnored"
)

const (
	// startTimeout is how long a pod waits for more important pods.
	startTimeout = 30 * time.Second
	// lookEvery is the time between two checks of the machine's load while a pod waits for its
	// turn. perLook is the number of pods that start after each check if the machine is not busy.
	lookEvery = 200 * time.Millisecond
	perLook   = 2
	// waitUntil is the time limit of a wait for other pods. Such a wait has no real limit, so this
	// is longer than a node runs.
	waitUntil = 365 * 24 * time.Hour
)

// StartOrderConfig configures a [StartOrder]. The zero value of every field means the default named
// beside it.
type StartOrderConfig struct {
	// Busy reports whether the machine was busy since the last call, and the reason in a few
	// words. Only one goroutine calls it, and not the loop. If it is nil, the kernel's pressure
	// figures decide.
	Busy func() (busy bool, why string)
	Log  *zap.Logger // if nil, nothing is logged
}

// StartOrder is the part that starts pods in an order: a pod after those that its
// annotation names, and important pods first while the machine is busy.
//
//	p, err := lifecycle.NewStartOrder(lifecycle.StartOrderConfig{Log: log})
//	parts := []part.Part{p, ...}
//
// A pod sets its order by annotations:
//
//	nodewright.io/after: db,other-namespace/queue
//	nodewright.io/start-priority: "100"
//
// Its methods may be called from any goroutine.
//
// # After
//
// A pod starts when the pods that it names are ready or have ended. A static pod is
// named as in its manifest, with or without the suffix of the node's name. Only starts
// are ordered: a pod that was ready once may fail later, and pods that run when an agent
// starts keep running. A name is ignored if the node has no such pod, if that pod is
// being deleted, or if it waits for this one. Then the event StartOrderIgnored says
// which name is ignored, and why.
//
// # Priority
//
// Pods are compared by start priority, and then by the priority of the pod. A pod is at
// least as important as the pods that wait for it. Less important pods wait while more
// important ones start and the machine is busy. The machine is busy if tasks have stalled
// for a CPU, the disk or memory for too much of the time since the last check
// (/proc/pressure, PSI of Linux; without it, if the CPUs were hardly idle). At each check
// when the machine is not busy, a few of the waiting pods start. No pod waits longer than
// 30 s. If all pods are equally important, none waits, and nothing is
// measured.
//
// # Hooks
//
// Admit makes a pod wait, with the reason StartOrder; "agent why" shows for which pods.
// Report notices pods that have become ready. Run measures the load while a pod waits
// for its turn, and otherwise does nothing. Sweep drops the state of pods that are
// gone. Explain says which names of a pod's annotation are ignored.
type StartOrder struct {
	cfg  StartOrderConfig
	host part.Host
	wake wake.Signal // set when a pod waits for its turn

	mu      sync.Mutex
	begun   map[types.UID]bool // true: was ready once, or has ended
	version int                // it grows with each change of begun
	graph   *graph
	of      []*v1.Pod               // pods of graph
	told    map[types.UID]string    // ignored names, as last reported
	queued  map[types.UID]time.Time // pods that wait for their turn, and since when
	turns   map[types.UID]bool      // pods that may start now, until they start
	places  int                     // number of waiting pods that may start
	why     string                  // the machine is busy
}

var (
	_ part.Joiner    = (*StartOrder)(nil)
	_ part.Admitter  = (*StartOrder)(nil)
	_ part.Reporter  = (*StartOrder)(nil)
	_ part.Runner    = (*StartOrder)(nil)
	_ part.Sweeper   = (*StartOrder)(nil)
	_ part.Explainer = (*StartOrder)(nil)
)

// NewStartOrder checks cfg and returns a part.
func NewStartOrder(cfg StartOrderConfig) (*StartOrder, error) {
	if cfg.Busy == nil {
		cfg.Busy = (&gauge{machine: kernel.This}).busy
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &StartOrder{
		cfg: cfg, wake: wake.New(), begun: map[types.UID]bool{}, told: map[types.UID]string{}, queued: map[types.UID]time.Time{}, turns: map[types.UID]bool{},
	}, nil
}

// Name implements part.Part.
func (*StartOrder) Name() string { return startOrderName }

// Join implements part.Joiner.
func (p *StartOrder) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Admit implements part.Admitter.
func (p *StartOrder) Admit(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
	pods := p.host.Pods()
	p.mu.Lock()
	message, left := p.admit(pod, pods)
	news := left != p.told[pod.UID]
	if news {
		p.told[pod.UID] = left
	}
	p.mu.Unlock()
	if news && left != "" {
		p.cfg.Log.Warn("ignored part of a pod's start order", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("problems", left))
		p.host.Event(pod, nil, v1.EventTypeWarning, ReasonStartOrderIgnored, left)
	}
	if message == "" {
		return nil
	}
	return &part.Rejection{Reason: ReasonStartOrder, Message: message, RetryUntil: time.Now().Add(waitUntil), Outside: true, Final: true}
}

// admit returns a message that says for what a pod waits. The message is "" if the pod does not
// wait. ignored says which names in the pod's annotation are ignored. The caller holds p.mu.
func (p *StartOrder) admit(pod *v1.Pod, pods []*v1.Pod) (message, ignored string) {
	if _, begun := p.begun[pod.UID]; begun {
		return "", p.told[pod.UID]
	}
	p.update(pods)
	n := p.graph.pods[pod.UID]
	if n == nil {
		return "", "" // a dry run
	}
	needs, problems := p.graph.needs(n)
	slices.Sort(problems)
	ignored = strings.Join(problems, "; ")
	if names := p.comes(needs); len(names) > 0 {
		delete(p.queued, pod.UID)
		return "waits for " + list(names) + " to be ready", ignored
	}
	before := p.comes(p.graph.before(n))
	if len(before) == 0 || p.turns[pod.UID] || p.takesTurn(pod.UID) {
		delete(p.queued, pod.UID)
		return "", ignored
	}
	return "waits for more important pods while the machine is busy: " + list(before), ignored
}

// comes returns the names of the pods that have not been rejected and so may still start, sorted.
func (p *StartOrder) comes(nodes []*orderNode) (names []string) {
	for _, n := range nodes {
		if phase, ok := p.host.Phase(n.pod.UID); !ok || !podmeta.IsTerminal(phase) {
			names = append(names, n.name())
		}
	}
	slices.Sort(names)
	return names
}

// takesTurn reports whether a pod may start although more important ones have not. The pod keeps
// its turn: if another part makes it wait, the answer must not change. The caller holds p.mu.
func (p *StartOrder) takesTurn(uid types.UID) bool {
	since, waits := p.queued[uid]
	if !waits {
		p.queued[uid] = time.Now()
		p.wake.Set()
		return false // pods that waited before come first
	}
	if time.Since(since) < startTimeout {
		if p.places == 0 {
			return false
		}
		p.places--
	}
	p.turns[uid] = true
	return true
}

// update updates the graph to the current pods and their states. The caller holds p.mu.
func (p *StartOrder) update(pods []*v1.Pod) {
	if p.graph == nil || !slices.Equal(p.of, pods) {
		p.of = pods
		p.graph = newGraph(pods, func(pod *v1.Pod) bool {
			return p.begun[pod.UID] || pod.DeletionTimestamp != nil || podmeta.IsTerminal(pod.Status.Phase)
		})
	}
	p.graph.at = p.version
}

// Report implements part.Reporter: the pod has started, and may be ready.
func (p *StartOrder) Report(pod *v1.Pod, st *v1.PodStatus) {
	done := podmeta.IsTerminal(st.Phase)
	for _, c := range st.Conditions {
		done = done || c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	}
	p.mu.Lock()
	before, begun := p.begun[pod.UID]
	done = done || before
	news := !begun || done != before
	if news {
		p.begun[pod.UID] = done
		delete(p.turns, pod.UID)
		p.version++
	}
	p.mu.Unlock()
	if news && done {
		p.host.Readmit()
	}
}

// Run implements part.Runner: it checks the machine's load while pods wait for their turn.
func (p *StartOrder) Run(ctx context.Context) error {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil
		}
		p.cfg.Busy() // the first call begins the measured time
		tick := time.NewTicker(lookEvery)
		for p.look(ctx, tick.C) {
		}
		tick.Stop()
	}
}

// look waits for the next check, and lets a few pods start if the machine is not busy then. It
// reports whether pods are still waiting.
func (p *StartOrder) look(ctx context.Context, tick <-chan time.Time) bool {
	select {
	case <-tick:
	case <-ctx.Done():
		return false
	}
	busy, why := p.cfg.Busy()
	select {
	case <-p.wake: // the pod that waits is in queued
	default:
	}
	p.mu.Lock()
	p.why, p.places = why, 0
	if !busy {
		p.places = perLook
	}
	waits, late := len(p.queued) > 0, false
	for _, since := range p.queued {
		late = late || time.Since(since) >= startTimeout
	}
	p.mu.Unlock()
	if waits && (!busy || late) {
		p.host.Readmit()
	}
	return waits
}

// Sweep implements part.Sweeper.
func (p *StartOrder) Sweep(_ context.Context, known func(types.UID) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.begun {
		if !known(uid) {
			delete(p.begun, uid)
			p.version++
		}
	}
	for uid := range p.told {
		if !known(uid) {
			delete(p.told, uid)
		}
	}
	for uid := range p.queued {
		if !known(uid) {
			delete(p.queued, uid)
		}
	}
	for uid := range p.turns {
		if !known(uid) {
			delete(p.turns, uid)
		}
	}
	return nil
}

// Explain implements part.Explainer.
func (p *StartOrder) Explain(pod *v1.Pod) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.told[pod.UID]; left != "" {
		return "left out of its start order: " + left
	}
	if _, waits := p.queued[pod.UID]; waits && p.why != "" {
		return "its turn: the machine is busy, " + p.why
	}
	return ""
}
