// Package slots limits the number of concurrent operations. An operation that hangs does
// not block other operations permanently: after a time limit its slot becomes free for the
// next waiter, while the operation continues. So a hanging operation delays others at most
// once, and at most for the time limit.
//
// A [Queue] belongs to a manager that chooses its next operation while it holds a lock.
// The queue never assigns a slot by itself. When a slot is free, it calls Config.Turn for
// the first waiter. Turn may then call Acquire.
//
//	slot := m.slots.Acquire(r)
//	if slot == nil {
//		return // the queue calls m.turn(r) when a slot may be free
//	}
//	go func() {
//		work(r)
//		m.mu.Lock()
//		defer m.mu.Unlock()
//		m.slots.Release(slot)
//	}()
package slots

import (
	"slices"
	"sync"
	"time"
)

// Config configures a Queue. All fields except Limit are required.
type Config[W comparable] struct {
	Slots int           // number of slots
	Limit time.Duration // time after which the slot of an operation becomes free; 0 means never
	// Lock guards the Queue: callers of its methods must hold Lock.
	Lock sync.Locker
	// Turn is called with Lock held when a slot may be free for the waiter w. w is no longer
	// in the line of waiters. Turn may call methods of the Queue.
	Turn func(w W)
}

// Queue is a number of slots with a line of waiters.
type Queue[W comparable] struct {
	cfg     Config[W]
	free    int
	waiting []W        // the line of waiters, the first one first
	inLine  map[W]bool // the elements of waiting
	// given has the slots in the order of their time limits, including released ones. All share
	// one timer.
	given []*Slot
	timer *time.Timer
	armed bool
}

// Slot is the permission to run one operation. Config.Lock guards it.
type Slot struct {
	held  bool
	until time.Time // the time limit
}

// New returns a Queue with all slots free.
func New[W comparable](cfg Config[W]) *Queue[W] {
	return &Queue[W]{cfg: cfg, free: cfg.Slots, inLine: map[W]bool{}}
}

// Acquire returns a slot for w. If no slot is free, it adds w to the line of waiters and
// returns nil. It also returns nil if w is already in the line.
func (q *Queue[W]) Acquire(w W) *Slot {
	switch {
	case q.inLine[w]:
		return nil
	case q.free == 0:
		q.inLine[w] = true
		q.waiting = append(q.waiting, w)
		return nil
	}
	q.free--
	s := &Slot{held: true}
	if q.cfg.Limit > 0 {
		s.until = time.Now().Add(q.cfg.Limit)
		if len(q.given) > 2*q.cfg.Slots {
			q.given = slices.DeleteFunc(q.given, func(s *Slot) bool { return !s.held })
		}
		q.given = append(q.given, s)
		q.arm(q.cfg.Limit)
	}
	return s
}

// arm starts the timer unless it is running. A running timer expires early enough, because
// the limit is the same for all slots.
func (q *Queue[W]) arm(d time.Duration) {
	switch {
	case q.armed:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(d, q.expire)
	default:
		q.timer.Reset(d)
	}
	q.armed = true
}

// expire frees the slots that have reached their time limit.
func (q *Queue[W]) expire() {
	q.cfg.Lock.Lock()
	defer q.cfg.Lock.Unlock()
	q.armed = false
	now := time.Now()
	for len(q.given) > 0 {
		s := q.given[0]
		if s.held && s.until.After(now) {
			q.arm(s.until.Sub(now))
			return
		}
		q.given[0] = nil
		q.given = q.given[1:]
		q.Release(s)
	}
}

// Release frees a slot and calls Turn for waiters while a slot is free. It ignores
// nil and a slot that was already released.
func (q *Queue[W]) Release(s *Slot) {
	if !s.Held() {
		return
	}
	s.held = false
	q.free++
	if q.free == q.cfg.Slots && q.armed { // no slot is in use
		q.timer.Stop()
		q.armed, q.given = false, q.given[:0]
	}
	for q.free > 0 && len(q.waiting) > 0 {
		var none W
		next := q.waiting[0]
		q.waiting[0] = none
		q.waiting = q.waiting[1:]
		delete(q.inLine, next)
		q.cfg.Turn(next)
	}
}

// Held reports whether a slot is in use: it was neither released nor freed at its time limit. It
// returns false if s is nil.
func (s *Slot) Held() bool { return s != nil && s.held }

// Free returns the number of free slots.
func (q *Queue[W]) Free() int { return q.free }

// Load returns the number of slots in use, the number of all slots, and the number of waiters.
func (q *Queue[W]) Load() (running, limit, waiting int) {
	return q.cfg.Slots - q.free, q.cfg.Slots, len(q.waiting)
}
