// Package book keeps what a node agent remembers of each pod beside its blocks:
// whether it was admitted, what it was answered, what is reserved for it.
package book

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
)

// Stage is how far a pod has come with this process of the agent.
type Stage uint8

// The stages. A pod goes from Unknown to Admitted, Waiting or Rejected, by way of
// Reserving and Reserved if a part has to wait for a plugin, a disk or a server.
const (
	Unknown   Stage = iota // not decided on
	Waiting                // not admitted for now; decided on again later
	Reserving              // the parts reserve for it, off the loop
	Reserved               // the parts have reserved or rejected; the loop is to conclude
	Undoing                // the pod was removed meanwhile; its reservations are being released
	Undone                 // its reservations are released
	Admitted
	Rejected

	stages = iota // how many there are
)

func (s Stage) String() string {
	return [...]string{"unknown", "waiting", "reserving", "reserved", "undoing", "undone", "admitted", "rejected"}[s]
}

// AwaitingEnd is why a pod waits that came back under its UID while it was ended.
const AwaitingEnd = "AwaitingEnd"

// Grants is what became of that which parts gave a pod for itself.
type Grants uint8

// The zero value is the careful one.
const (
	Granted    Grants = iota // the pod may have it
	TakingBack               // part.Stopper is being called, off the loop, for a rejected pod
	TakenBack                // part.Stopper has succeeded
)

// Entry is what the agent remembers of one pod beside its blocks.
type Entry struct {
	Stage Stage
	Ref   part.Ref
	// Life is the number of the pod's life, if that has begun in this process.
	Life uint32
	// Why is the last decision on the pod, which its status shows; nil if the pod was
	// admitted, or not decided on.
	Why *part.Rejection
	// Seen is how much of the pod had been seen when Why was given.
	Seen observed.Depth
	// Quiet is when a waiting pod may be reserved for again. Asked means that a decision was
	// postponed: a waiting pod is decided on at Quiet, a rejected one when its grants are taken back.
	Quiet time.Time
	Asked bool
	// Since is when the pod's reservation began, and Cancel cancels it. Verdict is the
	// decision of the parts, and Held what they reserved.
	Since   time.Time
	Cancel  context.CancelFunc
	Verdict *part.Rejection
	Held    []part.Reservation
	// Grants is what became of that which parts gave the pod for itself.
	Grants Grants
	// Changes counts the changes of the entry.
	Changes int
	// deadline is for spec.activeDeadlineSeconds.
	deadline *time.Timer
}

// Book keeps an entry for each pod that this process of the agent has heard of.
// Its methods may be called from any goroutine.
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

// Update changes a pod's entry, which is made if there is none.
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

// Get returns a copy of a pod's entry; of one that has none, the zero value.
func (b *Book) Get(uid types.UID) Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[uid]; e != nil {
		return *e
	}
	return Entry{}
}

// At lists the pods at one of some stages.
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

// Admit notes that a pod was admitted.
func (b *Book) Admit(ref part.Ref) {
	b.Update(ref, func(e *Entry) { e.Stage, e.Why = Admitted, nil })
}

// NextAt is the earliest time at which a waiting pod has to be looked at: it is
// rejected then, or may be reserved for again. Zero means none.
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

// SetDeadline has fn called after a while, unless it is set again or cleared
// before. fn is not called once the book is closed.
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

// ForgetIf is forget, unless the entry has changed since it had been changed that
// often.
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

// Counted lists the pods that hold or will hold resources of the node, as far as the book knows.
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
