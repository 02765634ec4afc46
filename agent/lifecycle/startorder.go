package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/kernel"
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
	defaultPatience = 30 * time.Second
	// lookEvery is the time between two checks of the machine's load while a pod waits for its
	// turn. perLook is the number of pods that start after each check if the machine is not busy.
	lookEvery = 200 * time.Millisecond
	perLook   = 2
	// waitUntil is the time limit of a wait for other pods, which has no limit of its own; no node
	// runs that long.
	waitUntil = 365 * 24 * time.Hour
)

// StartOrderConfig configures a [StartOrder]. The zero value of every field means the default named
// beside it.
type StartOrderConfig struct {
	// Patience is how long a pod waits for more important pods; 30s.
	Patience time.Duration
	// Busy reports whether the machine was busy since the last call, and why in a few words. One
	// goroutine calls it, not the loop. Default: the kernel's pressure figures.
	Busy func() (busy bool, why string)
	Log  *zap.Logger // silent
}

// StartOrder is the part that has pods begin in an order: after
// others, and the important ones first while the machine is busy.
//
//	p, err := lifecycle.NewStartOrder(lifecycle.StartOrderConfig{Log: log})
//	parts := []part.Part{p, ...}
//
// A pod says by annotations what it wants:
//
//	nodewright.io/after: db,other-namespace/queue
//	nodewright.io/start-priority: "100"
//
// Its methods may be called from any goroutine.
//
// # After
//
// A pod begins when those that it names are ready, or have come to their end. A static
// pod is named as in its manifest, with or without the node's name at its end. The order
// is one of beginnings: who was ready once may fail later, and what runs when an agent
// begins runs on. Nobody waits for a pod that the node does not have, one that is being
// deleted, or one that waits for it in turn: such a name is left out, with a warning
// (StartOrderIgnored) that says which and why.
//
// # Priority
//
// Start priority, then the pod's own, say who is more important; a pod is as important
// as those that wait for it. Lesser pods wait while more important ones begin and the
// machine is busy: by the time that tasks have stalled for a CPU, the disk or memory
// since the last look (/proc/pressure, Linux' PSI; without it by the time that CPUs were
// idle). While it is not busy a few of them are let through at each look. None waits
// for longer than StartOrderConfig.Patience. Where all are as important as each other nobody
// waits, and nothing is measured.
//
// # Hooks
//
// Admit has a pod wait, with the reason StartOrder; "why" shows for whom. Report sees
// who is ready. Run measures while a pod waits for its turn, and at rest does nothing.
// Sweep drops what is kept of pods that are gone. Explain says what was left out of a
// pod's annotations.
type StartOrder struct {
	cfg  StartOrderConfig
	host part.Host
	wake chan struct{} // has a value when a pod waits for its turn

	mu      sync.Mutex
	begun   map[types.UID]bool // true: was ready once, or has ended
	version int                // of begun
	graph   *graph
	of      []*v1.Pod               // that graph is of
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
	if cfg.Patience < 0 {
		return nil, fmt.Errorf("startorder: StartOrderConfig.Patience is %v; want a positive duration", cfg.Patience)
	}
	cfg.Patience = cmp.Or(cfg.Patience, defaultPatience)
	if cfg.Busy == nil {
		cfg.Busy = (&gauge{machine: kernel.This}).busy
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &StartOrder{
		cfg: cfg, wake: make(chan struct{}, 1), begun: map[types.UID]bool{}, told: map[types.UID]string{}, queued: map[types.UID]time.Time{}, turns: map[types.UID]bool{},
	}, nil
}

// Name implements part.Part.
func (*StartOrder) Name() string { return startOrderName }

// Join implements part.Joiner.
func (p *StartOrder) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("startorder: the part belongs to another agent")
	}
	p.host = h
	return nil
}

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

// admit returns what a pod waits for, "" for nothing, and which of its names are ignored. The
// caller holds p.mu.
func (p *StartOrder) admit(pod *v1.Pod, pods []*v1.Pod) (message, left string) {
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
	left = strings.Join(problems, "; ")
	if names := p.comes(needs); len(names) > 0 {
		delete(p.queued, pod.UID)
		return "waits for " + list(names) + " to be ready", left
	}
	before := p.comes(p.graph.before(n))
	if len(before) == 0 || p.turns[pod.UID] || p.takesTurn(pod.UID) {
		delete(p.queued, pod.UID)
		return "", left
	}
	return "waits for more important pods while the machine is busy: " + list(before), left
}

// comes returns the names of the nodes that have not been rejected, sorted.
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
		select {
		case p.wake <- struct{}{}:
		default:
		}
		return false // pods that waited before come first
	}
	if time.Since(since) < p.cfg.Patience {
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

// look waits for the next check, and lets a few pods start if the machine is not busy. It reports
// whether pods are waiting.
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
		late = late || time.Since(since) >= p.cfg.Patience
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
