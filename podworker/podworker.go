package podworker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// UpdateType describes why a pod is to be synced.
type UpdateType int

// The types of update. SyncUpdate, the zero value, is a look at a pod of which
// nothing is known to have changed.
const (
	SyncUpdate UpdateType = iota
	ConfigUpdate
	CreateUpdate
	KillUpdate
)

// String returns the type as the kubelet's metrics label it.
func (t UpdateType) String() string {
	switch t {
	case ConfigUpdate:
		return "update"
	case CreateUpdate:
		return "create"
	case KillUpdate:
		return "kill"
	default:
		return "sync"
	}
}

// Kind is the stage of a pod's life that a worker is in.
type Kind int

// The stages, in order. None is ever left backwards.
const (
	Sync Kind = iota
	Terminating
	Terminated
)

// String returns sync, terminating or terminated.
func (k Kind) String() string { return [...]string{"sync", "terminating", "terminated"}[k] }

// RuntimePod is a pod that only the runtime knows.
type RuntimePod struct {
	UID             types.UID
	Name, Namespace string
}

// KillOptions say how a pod is to end. They count with a KillUpdate, and with
// any update that makes its pod terminate.
type KillOptions struct {
	// Done, if not nil, is closed when the pod's containers are proven to
	// have stopped, or as soon as it is certain that this manager will not
	// stop them (the pod is unknown or finished, or Run has ended). It is
	// closed exactly once whatever happens.
	Done chan<- struct{}
	// Why is the cause of the end; the zero Cause leaves the pod its own time. A
	// grace period never grows; below 1 s counts as 1 s.
	Why podlife.Cause
}

// Update is news of one pod. Either Pod or RuntimePod is set; with both,
// RuntimePod is ignored. The objects are shared with the syncer from then on
// and must not be changed.
type Update struct {
	Type       UpdateType
	Pod        *v1.Pod
	RuntimePod *RuntimePod
	// Start is when the cause was seen; it only feeds a latency metric.
	Start time.Time
	Kill  *KillOptions
}

// Work is one call of a Syncer. The objects that it points to are shared, and
// must not be changed.
type Work struct {
	Type       UpdateType
	Pod        *v1.Pod
	RuntimePod *RuntimePod
	// NewerThan is the end of the last call that acted on the runtime: what
	// was observed before it is out of date. The zero time accepts anything.
	NewerThan time.Time
	// GracePeriodSeconds is set when the pod terminates on request; nil
	// when it came to its end by itself, or only the runtime knows it.
	GracePeriodSeconds *int64
	// Causes are those that were given for the end so far, in that order.
	Causes []podlife.Cause
	// Evicted reports that what the pod holds on the node may be removed although it
	// stays wanted (see [podlife.Cause.Evicts]).
	Evicted bool
}

// Outcome is what a sync came to. The zero value means that the pod runs on,
// and that nothing was changed.
type Outcome struct {
	// Terminal reports that the pod has reached its end and is to be
	// terminated. It is ignored beside an error.
	Terminal bool
	// Acted reports that the runtime was changed, so that the next call wants
	// a newer observation. An error implies it. It does not bring that call: an event
	// of the runtime does, by [Manager.Resync], or Again.
	Acted bool
	// Again is the time until the next sync; after Config.Resync if it is 0 or longer than
	// that. A syncer that makes one step in each sync sets it to the least that
	// is worth waiting, such as 1 ms. It is ignored beside an error, which has its back-off.
	Again time.Duration
	// After, if not nil, is called when the worker has taken note. It runs without
	// locks, in the worker's goroutine, and may call the Manager.
	After func()
}

// Syncer does the work. All of its methods must be idempotent, and should
// return soon after ctx ends. Calls for one UID never overlap; those for
// different UIDs do. A panic counts as an error of that call.
//
// An error may tell, anywhere in its tree, when to try again (a method
// RetryAt() time.Time; the earliest counts) and what it is called (a method
// Reason() string). ErrNetworkNotReady has a short delay of its own.
type Syncer interface {
	// SyncPod makes what runs match the spec.
	SyncPod(ctx context.Context, w Work) (Outcome, error)
	// SyncTerminatingPod ends all containers and returns nil only when none
	// can be running.
	SyncTerminatingPod(ctx context.Context, w Work) error
	// SyncTerminatingRuntimePod does that, and all clean-up, for a pod that
	// only the runtime knows.
	SyncTerminatingRuntimePod(ctx context.Context, w Work) error
	// SyncTerminatedPod frees what a pod without containers still holds.
	SyncTerminatedPod(ctx context.Context, w Work) error
}

// ErrNetworkNotReady means, in the tree of a syncer's error, that the node's
// network is what is missing.
var ErrNetworkNotReady = errors.New("network is not ready")

// Config holds what a Manager needs. Syncer is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Syncer Syncer
	// Idle reports, without blocking, that the runtime is known to run nothing
	// of a pod; never. It spares a pod that is first seen in a terminal
	// phase the stage of terminating.
	Idle func(types.UID) bool

	Resync         time.Duration // between looks at a pod at rest; 1m
	Backoff        time.Duration // after a first error, doubled by each further one; 1s
	MaxBackoff     time.Duration // its limit; 1m
	NetworkBackoff time.Duration // after ErrNetworkNotReady; 1s
	// FirstSyncs is how many pods may be in their first sync at a time, for
	// as long as each takes less than 10 s; 4.
	FirstSyncs int

	Log     *zap.Logger           // silent
	Metrics prometheus.Registerer // not exported
}

// The kubelet's defaults, but for the back-off: it retries every pod after a
// flat 10 s.
const (
	defaultResync         = time.Minute
	defaultBackoff        = time.Second
	defaultMaxBackoff     = time.Minute
	defaultNetworkBackoff = time.Second
	defaultFirstSyncs     = 4
)

// withDefaults returns c with every zero field set to the default that its
// comment names.
func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{
		{&c.Resync, defaultResync}, {&c.Backoff, defaultBackoff},
		{&c.MaxBackoff, defaultMaxBackoff}, {&c.NetworkBackoff, defaultNetworkBackoff},
	} {
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	if c.FirstSyncs == 0 {
		c.FirstSyncs = defaultFirstSyncs
	}
	if c.Idle == nil {
		c.Idle = func(types.UID) bool { return false }
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns all faults of c joined.
func (c Config) validate() error {
	var errs []error
	if c.Syncer == nil {
		errs = append(errs, errors.New("Config.Syncer is required"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Resync", c.Resync}, {"Backoff", c.Backoff}, {"MaxBackoff", c.MaxBackoff}, {"NetworkBackoff", c.NetworkBackoff},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("field Config.%s is %v; want a positive duration", d.name, d.value))
		}
	}
	if c.FirstSyncs < 0 {
		errs = append(errs, fmt.Errorf("Config.FirstSyncs is %d; want a positive number", c.FirstSyncs))
	}
	return errors.Join(errs...)
}
