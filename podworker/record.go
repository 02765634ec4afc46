package podworker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// record is all that is known of one UID. Manager.mu guards it.
type record struct {
	uid             types.UID
	namespace, name string
	static          bool

	startedAt          time.Time // allowed to begin
	terminatingAt      time.Time // its end was asked for, or came
	terminatedAt       time.Time // its containers are proven stopped
	startedTerminating bool      // the worker has acted on terminatingAt
	finished           bool      // nothing is left to do
	deleted, evicted   bool
	observedRuntime    bool

	grace       int64 // seconds; 0 until termination is requested
	done        []chan<- struct{}
	statusFuncs []func(*v1.PodStatus)

	// Values, so that an update costs no allocation.
	pending, active news    // the next to run, and the last that ran, merged
	restart         *Update // a create that waits for this record to finish

	running bool // a goroutine works on it
	queued  bool // waits for a place among the first syncs
	place   bool // holds one
	begun   bool // its first sync has returned

	// turn is the call in flight. While there is one, what it says belongs to
	// the worker's goroutine; cancel is nil without one.
	turn   turn
	cancel context.CancelCauseFunc

	limit      *time.Timer // takes its place away
	timer      *time.Timer // acts at nextAt
	nextAt     time.Time
	nextReason string

	newerThan time.Time
	doing     string
	since     time.Time
	failures  int
	lastErr   error
	waitFor   string
}

// news is an update, if there is one.
type news struct {
	Update
	ok bool
}

// turn is one call of the syncer.
type turn struct {
	ctx   context.Context
	kind  Kind
	work  Work
	start time.Time
}

func (r *record) fullName() string { return podmeta.FullName(r.namespace, r.name) }

func (r *record) kind() Kind {
	switch {
	case !r.terminatedAt.IsZero():
		return Terminated
	case !r.terminatingAt.IsZero():
		return Terminating
	default:
		return Sync
	}
}

// pod is the newest known spec, or nil.
func (r *record) pod() *v1.Pod {
	if r.pending.Pod != nil {
		return r.pending.Pod
	}
	return r.active.Pod
}

// notifyDone closes every completion channel, once.
func (r *record) notifyDone() {
	for _, d := range r.done {
		close(d)
	}
	r.done = nil
}

func (r *record) stopTimer() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.nextAt, r.nextReason = time.Time{}, ""
}

func (r *record) stopLimit() {
	if r.limit != nil {
		r.limit.Stop()
	}
}

// merge makes u the last update that ran, keeping what it does not bring.
func (r *record) merge(u *Update) {
	r.active.ok = true
	r.active.RuntimePod = u.RuntimePod
	if u.Pod != nil {
		r.active.Pod = u.Pod
	}
	if u.MirrorPod != nil {
		r.active.MirrorPod = u.MirrorPod
	}
}
