package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// KillFunc ends a pod with the grace period of the cause, and returns when the pod's containers
// have stopped. From then on the pod's status must show the cause. After an error the pod may
// still run. KillFunc is called for different pods concurrently.
type KillFunc func(ctx context.Context, pod *v1.Pod, why podlife.Cause) error

// Reclaimer frees disk without terminating a pod. Both methods return when they are done or ctx
// ends. An error is logged; the space that was freed nevertheless counts.
type Reclaimer interface {
	// Containers removes containers that have ended and their sandboxes.
	Containers(ctx context.Context) error
	// Images removes every image that nothing uses.
	Images(ctx context.Context) error
}

// Events records Kubernetes events of pods and of the node. It must not block. annotations are
// those of the kubelet's eviction events, and may be nil.
type Events interface {
	Pod(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
	Node(eventType, reason, message string)
}

// Config holds what a Manager needs. Stats, Pods and Kill are required; the
// zero value of every other field means the default named beside it.
type Config struct {
	Stats Stats
	// Pods lists the pods that run or will run, with their allocated resources. Pods that
	// have ended are left out.
	Pods func() []*v1.Pod
	Kill KillFunc
	// Freed reports whether the volumes, files and memory of an evicted pod are free again after
	// its containers have stopped. Until then, for 30 s at most (the kubelet's time), no further
	// pod is evicted for the same amount. Freed must not block. If Freed is nil, they count as
	// free when Kill returns.
	Freed func(uid types.UID) bool
	// Critical reports pods that are never evicted and are admitted even under pressure. Default:
	// podmeta.IsCritical, which is true for static pods and pods of a system priority.
	Critical func(*v1.Pod) bool

	// Thresholds are the thresholds of all signals, usually from rank.Parse. Without thresholds
	// only limits of local storage are watched.
	Thresholds []rank.Threshold
	// Signals are signals in addition to the ones of package rank.
	Signals []Signal
	Reclaim Reclaimer  // if nil, nothing is reclaimed
	Notify  []Notifier // without notifiers, signals are read at their intervals only
	Events  Events     // if nil, no events are recorded
	// Changed is called when a condition has changed. It must not block. If Changed is nil,
	// nothing is called.
	Changed func()

	Transition time.Duration // how long a condition stays after its cause is over; the default is 5 min
	// MaxPodGraceSeconds limits the grace period of pods evicted at a soft threshold, in seconds.
	// The default is 0, as in the kubelet. A negative value means no limit.
	MaxPodGraceSeconds int64
	// Victims is how many evictions for one resource may be in progress at a time. The default is
	// 4. The kubelet evicts one pod at a time.
	Victims int
	// IgnoreLimits turns off evictions by limits of local storage.
	IgnoreLimits bool

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

// interval is the longest time between two reads of a signal: the kubelet's monitoring interval.
const interval = 10 * time.Second

// The contexts of calls end after these times. A call that ignores its context delays only its own
// lane.
const (
	statsTimeout   = interval    // limit of a call of Stats
	reclaimTimeout = time.Minute // limit of a call of Reclaim: removing a large image takes many seconds
)

func (c Config) withDefaults() Config {
	if c.Transition == 0 {
		c.Transition = 5 * time.Minute // the kubelet's evictionPressureTransitionPeriod
	}
	if c.Critical == nil {
		c.Critical = podmeta.IsCritical
	}
	if c.Victims == 0 {
		c.Victims = 4
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Events == nil {
		c.Events = noEvents{}
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return c
}

// validate returns an error with all invalid fields. It is called after withDefaults.
func (c Config) validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(c.Stats != nil, "field Config.Stats is required")
	require(c.Pods != nil, "field Config.Pods is required")
	require(c.Kill != nil, "field Config.Kill is required")
	require(c.Transition > 0, "field Config.Transition is %v; want a positive duration", c.Transition)
	require(c.Victims > 0, "field Config.Victims is %d; want a positive number", c.Victims)
	// The watches of a lane are a map by threshold, so thresholds must be unique.
	seen := map[rank.Threshold]bool{}
	known := map[rank.Signal]bool{}
	conditions := conditionTypes()
	for i, s := range c.Signals {
		require(s.Name != "" && !s.Name.Known() && !known[s.Name], "field Config.Signals[%d].Name is %q; want a name that no other signal has", i, s.Name)
		require(s.Condition != "" && s.Condition != v1.NodeReady && !slices.Contains(conditions, s.Condition),
			"field Config.Signals[%d].Condition is %q; want a condition that nothing else sets", i, s.Condition)
		require(s.Read != nil, "field Config.Signals[%d].Read is required", i)
		known[s.Name], conditions = true, append(conditions, s.Condition)
	}
	for i, t := range c.Thresholds {
		require(t.Signal.Known() || known[t.Signal], "field Config.Thresholds[%d].Signal is %q; want a known signal, or one of Config.Signals", i, t.Signal)
		require(t.Grace >= 0, "field Config.Thresholds[%d].Grace is %v; want 0 or more", i, t.Grace)
		require(!seen[t], "field Config.Thresholds[%d] is the same as one before; want each once", i)
		seen[t] = true
	}
	for i, n := range c.Notify {
		require(n.Source != nil, "field Config.Notify[%d].Source is required", i)
		require(n.Signal.Known() || known[n.Signal], "field Config.Notify[%d].Signal is %q; want a known signal, or one of Config.Signals", i, n.Signal)
	}
	return errors.Join(errs...)
}

// noEvents is the Events of a Manager without Config.Events.
type noEvents struct{}

func (noEvents) Pod(*v1.Pod, map[string]string, string, string, string) {}
func (noEvents) Node(string, string, string)                            {}

// Manager observes a node's resources and evicts pods. Its methods may be called from any
// goroutine and do not block.
type Manager struct {
	cfg   Config
	met   *metrics
	lanes []*lane
	wg    sync.WaitGroup

	mu       sync.Mutex
	pressure map[v1.NodeConditionType]pressure
	// evicting has evictions under way and, for a while, those that have ended; see
	// sweep.
	evicting map[types.UID]*eviction
	figures  map[v1.NodeConditionType][]Figure
	records  records
}

// New checks cfg and returns a Manager, which Run starts. The error names every invalid field.
func New(cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("eviction: %w", err)
	}
	met, err := newMetrics(&cfg)
	if err != nil {
		return nil, fmt.Errorf("eviction: %w", err)
	}
	m := &Manager{
		cfg: cfg, met: met,
		pressure: map[v1.NodeConditionType]pressure{},
		evicting: map[types.UID]*eviction{},
		figures:  map[v1.NodeConditionType][]Figure{},
	}
	// A lane for each condition, also for those without thresholds: evictions wake
	// them all.
	for _, c := range conditionTypes() {
		m.lanes = append(m.lanes, newLane(m, c, nil))
	}
	for i := range cfg.Signals {
		m.lanes = append(m.lanes, newLane(m, cfg.Signals[i].Condition, &cfg.Signals[i]))
	}
	return m, nil
}

// Run observes and evicts until ctx ends, and returns nil when every goroutine has ended.
// Evictions under way are abandoned then. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	for _, l := range m.lanes {
		// Without a threshold there is nothing to look at, and no goroutine.
		if l.idle() {
			continue
		}
		m.wg.Go(func() { l.run(ctx) })
	}
	for _, n := range m.cfg.Notify {
		m.wg.Go(func() { m.listen(ctx, n) })
	}
	<-ctx.Done()
	m.wg.Wait()
	return nil
}

// lane returns the lane that watches a signal, or nil.
func (m *Manager) lane(s rank.Signal) *lane {
	for _, l := range m.lanes {
		if l.watchesSignal(s) {
			return l
		}
	}
	return nil
}
