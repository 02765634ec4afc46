package pressure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/internal/preempt"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// preemptionName is the name of the part.
const preemptionName = "preemption"

// PreemptionConfig configures a [Preemption]. The zero value of every field means the default named
// beside it.
type PreemptionConfig struct {
	// Standalone says that all pods are static: then a pod is critical only by its priority.
	// Otherwise all static pods are critical.
	Standalone bool
	// Hold reports whether static victims must not start again now, for example during a
	// shutdown. It is called on the loop and must not block. If it is nil, they may always start
	// again.
	Hold func() bool

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// Preemption is the part that terminates less important pods, so that a critical pod
// fits.
//
//	p, err := pressure.NewPreemption(pressure.PreemptionConfig{Standalone: alone, Log: log, Metrics: registry})
//
// A pod is critical if it is static or has the priority of system pods. If all pods are
// static (PreemptionConfig.Standalone), only the priority counts. Pods of the lowest
// QoS class are terminated first, and no more of them than necessary.
//
// Its methods may be called from any goroutine.
//
// # Hooks
//
// Victims chooses pods if the requests of other pods are the only obstacle for the
// critical pod. Preempt returns the cause of their end: they get their own grace
// period, the phase Failed, the reason Preempting, the condition DisruptionTarget and
// an event. Before it terminates victims, the agent asks all parts whether the pod
// would be admitted without them. The pod waits until all victims have ended. If a
// victim exceeds its grace period by half a minute, others are chosen instead. Over
// makes a static victim start again when the critical pod is no longer wanted, since
// the victim has no controller; Explain says that it waits for this.
//
// # Ownership and faults
//
// The part has no goroutine. Its only state is which static pods were terminated for which
// pod. After a restart of the agent this is not known: such victims are tried once, when
// all running pods are known, and admitted if they fit.
type Preemption struct {
	cfg      PreemptionConfig
	critical func(*v1.Pod) bool
	host     part.Host
	count    *prometheus.CounterVec

	mu   sync.Mutex
	gone map[types.UID]cause // static victims
}

// cause is the pod that a victim was terminated for.
type cause struct {
	uid  types.UID
	name string
}

var (
	_ part.Joiner      = (*Preemption)(nil)
	_ part.Preempter   = (*Preemption)(nil)
	_ part.Reviver     = (*Preemption)(nil)
	_ part.Explainer   = (*Preemption)(nil)
	_ part.Housekeeper = (*Preemption)(nil)
)

// NewPreemption returns a part. It returns an error if the metrics cannot be registered.
func NewPreemption(cfg PreemptionConfig) (*Preemption, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Hold == nil {
		cfg.Hold = func() bool { return false }
	}
	p := &Preemption{cfg: cfg, critical: preempt.Critical, gone: map[types.UID]cause{}}
	if cfg.Standalone {
		p.critical = preempt.SystemPriority
	}
	p.count = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_preemptions",
		Help: "Pods that ended for a critical pod, by the first resource that it lacked.",
	}, []string{"preemption_signal"})
	if err := promshare.Register(cfg.Metrics, p.count); err != nil {
		return nil, fmt.Errorf("preemption: %w", err)
	}
	return p, nil
}

// Name implements part.Part.
func (*Preemption) Name() string { return preemptionName }

// Join implements part.Joiner.
func (p *Preemption) Join(h part.Host) error { return part.SetHost(&p.host, h) }

// Victims implements part.Preempter. It returns none for a pod that is not critical.
func (p *Preemption) Victims(pod *v1.Pod, others []*v1.Pod, missing v1.ResourceList) []*v1.Pod {
	if !p.critical(pod) {
		return nil
	}
	victims, err := preempt.Choose(pod, others, missing, p.critical)
	if err != nil {
		p.cfg.Log.Info("no pods can be preempted", zap.String("for", pod.Namespace+"/"+pod.Name), zap.Error(err))
		return nil
	}
	return victims
}

// Preempt implements part.Preempter.
func (p *Preemption) Preempt(pod, victim *v1.Pod, missing v1.ResourceList) (podlife.Cause, func(error)) {
	why := podlife.Cause{Kind: podlife.Preempted, At: time.Now()}
	eventType, reason, message := why.Event()
	p.host.Event(victim, nil, eventType, reason, message)
	if podmeta.IsStatic(victim) {
		p.mu.Lock()
		p.gone[victim.UID] = cause{pod.UID, pod.Namespace + "/" + pod.Name}
		p.mu.Unlock()
	}
	return why, func(err error) { p.ended(victim, firstOf(missing), err) }
}

// ended counts a victim that has ended, and logs one that could not be terminated.
func (p *Preemption) ended(victim *v1.Pod, resource string, err error) {
	switch {
	case err == nil:
		p.count.WithLabelValues(resource).Inc()
	case errors.Is(err, context.Canceled): // the agent ends
	default:
		p.cfg.Log.Warn("failed to preempt pod", zap.String("pod", victim.Namespace+"/"+victim.Name), zap.Error(err))
		if errors.Is(err, context.DeadlineExceeded) {
			p.host.Event(victim, nil, v1.EventTypeWarning, "ExceededGracePeriod", "The pod has not ended within its grace period")
		}
	}
}

// firstOf returns the first resource, in the kubelet's order. There are few candidates, since
// victims are chosen only for resources that the node has.
func firstOf(missing v1.ResourceList) string {
	for _, name := range []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if _, is := missing[name]; is {
			return string(name)
		}
	}
	first := slices.Sorted(maps.Keys(missing))
	return string(first[0])
}

// Over implements part.Reviver.
func (p *Preemption) Over(pod *v1.Pod, cause podlife.Cause) bool {
	if cause.Kind != podlife.Preempted || !cause.Returns(pod) || p.cfg.Hold() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, known := p.gone[pod.UID]; known {
		return !p.wanted(c)
	}
	return p.settled()
}

// Begins implements part.Reviver.
func (p *Preemption) Begins(pod *v1.Pod, _ podlife.Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, pod.UID)
	p.cfg.Log.Info("pod begins again after its preemption", zap.String("pod", pod.Namespace+"/"+pod.Name))
}

// settled reports whether all running pods are known. Before that, a victim that started
// again could take resources that are in use.
func (p *Preemption) settled() bool {
	select {
	case <-p.host.Settled():
		return true
	default:
		return false
	}
}

// wanted reports whether the pod that caused a preemption is still wanted and has not finished.
func (p *Preemption) wanted(c cause) bool {
	if _, ok := p.host.Pod(c.uid); !ok {
		return false
	}
	phase, ok := p.host.Phase(c.uid)
	return !ok || !podmeta.IsTerminal(phase)
}

// Explain implements part.Explainer.
func (p *Preemption) Explain(pod *v1.Pod) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.gone[pod.UID]; ok {
		return "the end of pod " + c.name + ": it was preempted for it, and begins again then"
	}
	return ""
}

// Housekeep implements part.Housekeeper: it drops pods that no source wants any more.
func (p *Preemption) Housekeep(desired []*v1.Pod) {
	want := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		want[pod.UID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.gone {
		if !want[uid] {
			delete(p.gone, uid)
		}
	}
}
