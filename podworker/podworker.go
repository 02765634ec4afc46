package podworker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
)

// UpdateType describes why a pod is to be synced.
type UpdateType int

// The types of update. SyncUpdate, the zero value, syncs a pod without a known
// change.
const (
	SyncUpdate UpdateType = iota
	ConfigUpdate
	CreateUpdate
	KillUpdate
)

// String returns the type's label in the kubelet's metrics: sync, update, create or kill.
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

// The stages, in order. A worker never returns to an earlier one.
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

// KillOptions says how to terminate a pod. It takes effect with a KillUpdate, and with
// any other update that makes the pod terminate.
type KillOptions struct {
	// Done, if not nil, is closed when the pod's containers are proven to
	// have stopped, or when it is certain that this Manager will not stop
	// them: the pod is unknown or finished, or Run has ended. In every case
	// it is closed exactly once.
	Done chan<- struct{}
	// Why is the cause of the termination. If Why is the zero Cause, the pod gets the grace
	// period of its spec. A later request can shorten the grace period, not extend it; the
	// minimum is 1 s.
	Why podlife.Cause
}

// Update is a change of one pod, or a request to sync or terminate it. Either Pod or
// RuntimePod is set; if both are, RuntimePod is ignored. The objects are shared with the
// syncer after the call and must not be changed.
type Update struct {
	Type       UpdateType
	Pod        *v1.Pod
	RuntimePod *RuntimePod
	// Life is the number of the pod's life ([podlife.Life]). It is used only in the update that
	// creates the pod's worker.
	Life uint32
	// Start is when the cause of the update was observed. Only a latency metric uses it.
	Start time.Time
	Kill  *KillOptions
}

// Work is one call of a Syncer. The objects that it points to are shared, and
// must not be changed.
type Work struct {
	Type UpdateType
	// Life identifies the life of the pod ([podlife.Life]) for which the worker was created.
	Life       podlife.Life
	Pod        *v1.Pod
	RuntimePod *RuntimePod
	// NewerThan is when the last call that changed the runtime ended: older observations are out of
	// date. The zero time means that any observation may be used.
	NewerThan time.Time
	// GracePeriodSeconds is set if the termination was requested. It is nil if the pod ended by
	// itself, or if only the runtime knows the pod.
	GracePeriodSeconds *int64
	// Causes lists the causes of the termination so far, oldest first.
	Causes []podlife.Cause
	// Evicted reports that the pod's content on the node may be removed although a
	// source still wants the pod (see [podlife.Cause.Evicts]).
	Evicted bool
}

// Outcome is the result of a sync. The zero value means that the pod continues to run
// and the runtime was not changed.
type Outcome struct {
	// Terminal reports that the pod has ended by itself and is to be terminated. It is
	// ignored if the sync returns an error.
	Terminal bool
	// Acted reports that the runtime was changed, so that the next call needs a newer observation
	// (Work.NewerThan). An error implies it. Acted alone does not cause another sync: set Again,
	// or call [Manager.Resync] when the runtime reports the change.
	Acted bool
	// Again is the time until the next sync. If it is 0, or longer than Config.Resync,
	// Config.Resync is used. A syncer that makes one step in each sync sets Again to a short
	// time, such as 1 ms. If the sync returns an error, Again is ignored and the back-off
	// decides.
	Again time.Duration
	// After, if not nil, is called when the Manager has recorded the outcome. It is
	// called in the worker's goroutine without a lock and may call the Manager.
	After func()
}

// Syncer starts, stops and cleans up pods. All of its methods must be idempotent, and
// should return soon after ctx ends. Calls for one UID never overlap; calls for
// different UIDs do. A panic counts as an error of that call.
//
// An error, or any error that it wraps, may be a [RetryAter] or a [Reasoner].
// ErrNetworkNotReady is retried after a second.
type Syncer interface {
	// SyncPod changes the running pod to match its spec.
	SyncPod(ctx context.Context, w Work) (Outcome, error)
	// SyncTerminatingPod stops all containers. It returns nil only when no
	// container can be running.
	SyncTerminatingPod(ctx context.Context, w Work) error
	// SyncTerminatingRuntimePod stops and cleans up a pod that only the runtime
	// knows.
	SyncTerminatingRuntimePod(ctx context.Context, w Work) error
	// SyncTerminatedPod cleans up a pod whose containers have stopped.
	SyncTerminatedPod(ctx context.Context, w Work) error
}

// ErrNetworkNotReady is wrapped in a Syncer's error if the node's network is not ready.
var ErrNetworkNotReady = errors.New("network is not ready")

// Config holds what a Manager needs. Syncer is required; the zero value of
// every other field means the default named beside it.
type Config struct {
	Syncer Syncer
	// Idle reports that the runtime is known to run no container of a pod. It must not block. A
	// pod whose first update has a terminal phase then skips the stage Terminating. If Idle is
	// nil, no pod skips it.
	Idle func(types.UID) bool
	// Finished is called when nothing is left to do for a pod: its clean-up has succeeded, or it
	// ended before anything was done. It must not block, nor call the Manager. If Finished is
	// nil, nothing is called.
	Finished func(types.UID)

	Resync time.Duration // time between syncs of a pod without changes; the default is 1 min
	// FirstSyncs is the number of pods that may be in their first sync at a time. A first sync
	// that takes 10 s or more no longer counts. The default is the number of CPUs that the
	// process may use, but at least 4.
	FirstSyncs int

	Log     *zap.Logger           // if nil, nothing is logged
	Metrics prometheus.Registerer // if nil, metrics are not exported
}

const (
	defaultResync = time.Minute // the kubelet's
	// The delay after a first error is firstBackoff. Each further error doubles it, up to
	// maxBackoff. The kubelet retries every pod after a constant 10 s.
	firstBackoff = time.Second
	maxBackoff   = time.Minute
	// networkBackoff is the delay after ErrNetworkNotReady, as in the kubelet.
	networkBackoff = time.Second
)

// minFirstSyncs is the smallest default of Config.FirstSyncs. A first sync mostly waits for the
// runtime, so four first syncs keep one or two CPUs busy; more would delay the median pod. On 16
// CPUs with containerd, 100 pods take twice as long with four first syncs at a time as with 16;
// 48 are no faster than 16.
const minFirstSyncs = 4

// withDefaults returns c with every zero field set to the default that its
// comment names.
func (c Config) withDefaults() Config {
	if c.Resync == 0 {
		c.Resync = defaultResync
	}
	if c.FirstSyncs == 0 {
		c.FirstSyncs = max(minFirstSyncs, runtime.GOMAXPROCS(0))
	}
	if c.Idle == nil {
		c.Idle = func(types.UID) bool { return false }
	}
	if c.Finished == nil {
		c.Finished = func(types.UID) {}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// validate returns all mistakes in c, joined.
func (c Config) validate() error {
	var errs []error
	if c.Syncer == nil {
		errs = append(errs, errors.New("Config.Syncer is required"))
	}
	if c.Resync < 0 {
		errs = append(errs, fmt.Errorf("field Config.Resync is %v; want a positive duration", c.Resync))
	}
	if c.FirstSyncs < 0 {
		errs = append(errs, fmt.Errorf("Config.FirstSyncs is %d; want a positive number", c.FirstSyncs))
	}
	return errors.Join(errs...)
}
