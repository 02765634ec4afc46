// Package book stores the agent's own state of each pod: the stage of its admission, the last
// decision, and its reservations.
package book

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
)

// Stage is the stage of a pod's admission in this process.
type Stage uint8

// The stages. A pod goes from Unknown to Admitted, Waiting or Rejected, through Reserving and
// Reserved if a part has to wait for a plugin, a disk or a server.
const (
	Unknown   Stage = iota // not decided on
	Waiting                // not admitted for now; decided on again later
	Reserving              // the parts make reservations, off the loop
	Reserved               // the reservations succeeded or failed; the loop has to conclude
	Undoing                // the pod was removed meanwhile; its reservations are being released
	Undone                 // its reservations are released
	Admitted
	Rejected

	stages = iota // how many there are
)

func (s Stage) String() string {
	return [...]string{"unknown", "waiting", "reserving", "reserved", "undoing", "undone", "admitted", "rejected"}[s]
}

// AwaitingEnd is the reason of a pod that was created again under its UID and waits for its own
// termination.
const AwaitingEnd = "AwaitingEnd"

// Grants is the state of the resources that parts gave to a pod.
type Grants uint8

// The values of Grants. The zero value means that the pod may still hold resources.
const (
	Granted    Grants = iota // the pod may hold resources
	TakingBack               // part.Stopper is being called, off the loop, for a rejected pod
	TakenBack                // part.Stopper has succeeded
)

// Entry is the agent's own state of a pod.
type Entry struct {
	Stage Stage
	Ref   part.Ref
	// Life is the number of the pod's life, if it began in this process.
	Life uint32
	// Why is the reason of the last decision, which the pod's status shows. It is nil if the pod
	// was admitted, or if nothing was decided yet.
	Why *part.Rejection
	// Seen is how well the state of the pod was known when Why was decided.
	Seen observed.Depth
	// Quiet is the time before which no reservation is made again for a waiting pod. Asked means
	// that a decision was postponed: for a waiting pod until Quiet, for a rejected pod until its
	// grants are released.
	Quiet time.Time
	Asked bool
	// Since is the start of the pod's reservation, and Cancel cancels it. Verdict is the decision
	// of the parts, and Held their reservations.
	Since   time.Time
	Cancel  context.CancelFunc
	Verdict *part.Rejection
	Held    []part.Reservation
	// Grants is the state of the resources that parts gave to the pod.
	Grants Grants
	// Changes counts the changes of the entry.
	Changes int
	// deadline is for spec.activeDeadlineSeconds.
	deadline *time.Timer
}

// Book has an entry for each pod that this process knows. Its methods may be called from any
// goroutine.
type Book struct {
	mu      sync.Mutex
	entries map[types.UID]*Entry
	at      [stages]map[types.UID]*Entry // entries by their stage
	closed  bool
}

// New returns an empty book.
func New() *Book {
	b := &Book{entries: map[types.UID]*Entry{}}
	for s := range b.at {
		b.at[s] = map[types.UID]*Entry{}
	}
	return b
}

// Update changes the entry of a pod with fn. If there is no entry, Update creates it first.
func (b *Book) Update(ref part.Ref, fn func(*Entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[ref.UID]
	if e == nil {
		e = &Entry{}
		b.entries[ref.UID], b.at[e.Stage][ref.UID] = e, e
	}
	before := e.Stage
	if ref.Name != "" {
		e.Ref = ref
	} else if e.Ref.UID == "" {
		e.Ref.UID = ref.UID
	}
	fn(e)
	e.Changes++
	if e.Stage != before {
		delete(b.at[before], ref.UID)
		b.at[e.Stage][ref.UID] = e
	}
}

// Get returns a copy of a pod's entry. If there is none, it returns the zero value.
func (b *Book) Get(uid types.UID) Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[uid]; e != nil {
		return *e
	}
	return Entry{}
}

// At returns the entries of all pods at one of the given stages.
func (b *Book) At(stages ...Stage) map[types.UID]Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[types.UID]Entry{}
	for _, s := range stages {
		for uid, e := range b.at[s] {
			out[uid] = *e
		}
	}
	return out
}

// Admit records that a pod was admitted.
func (b *Book) Admit(ref part.Ref) {
	b.Update(ref, func(e *Entry) { e.Stage, e.Why = Admitted, nil })
}

// NextAt returns the earliest time at which a waiting pod has to be rejected, or a new
// reservation may be made for one. It returns the zero time if no pod waits for such a time.
func (b *Book) NextAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, e := range b.at[Waiting] {
		sooner(e.Why.RetryUntil)
		if e.Asked {
			sooner(e.Quiet)
		}
	}
	return next
}

// SetDeadline calls fn when the time after has passed, unless the pod's deadline is set again
// or cleared before. After Close, fn is not called.
func (b *Book) SetDeadline(ref part.Ref, after time.Duration, fn func()) {
	b.Update(ref, func(e *Entry) {
		switch {
		case b.closed:
		case e.deadline != nil:
			e.deadline.Reset(after)
		default:
			e.deadline = time.AfterFunc(after, fn)
		}
	})
}

// ClearDeadline stops a pod's deadline.
func (b *Book) ClearDeadline(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[uid]; e != nil && e.deadline != nil {
		e.deadline.Stop()
		e.deadline = nil
	}
}

// Forget drops the entry of a pod.
func (b *Book) Forget(uid types.UID) { b.ForgetIf(uid, b.Get(uid).Changes) }

// ForgetIf drops the entry of a pod, unless the entry has changed since it had that
// number of changes.
func (b *Book) ForgetIf(uid types.UID, changes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[uid]
	if e == nil || e.Changes != changes {
		return
	}
	if e.deadline != nil {
		e.deadline.Stop()
	}
	delete(b.entries, uid)
	delete(b.at[e.Stage], uid)
}

// Counted returns the pods that hold or will hold resources of the node, according to their
// stages.
func (b *Book) Counted() map[types.UID]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[types.UID]bool, len(b.at[Admitted])+len(b.at[Reserving])+len(b.at[Reserved]))
	for _, s := range [...]Stage{Admitted, Reserving, Reserved} {
		for uid := range b.at[s] {
			out[uid] = true
		}
	}
	for uid, e := range b.at[Waiting] {
		if e.Why.Reason == AwaitingEnd {
			out[uid] = true
		}
	}
	return out
}

// Close stops every timer.
func (b *Book) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, e := range b.entries {
		if e.deadline != nil {
			e.deadline.Stop()
		}
	}
}
