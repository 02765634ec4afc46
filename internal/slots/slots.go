// Package slots limits the number of concurrent operations. An operation that hangs
// does not block the others: after a time limit its slot goes to the next waiter,
// while the operation continues. Each such operation delays others once, and at
// most for the limit.
//
// A [Queue] belongs to a manager that decides under its lock about its next operation.
// The queue never assigns a slot by itself. When a slot is free, it calls Config.Turn
// for the first waiter. Turn may then request the slot.
//
//	slot := m.slots.Acquire(r)
//	if slot == nil {
//		return // m.turn(r) is called when there may be one
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

// Config configures a Queue. All fields but Limit are required.
type Config[W comparable] struct {
	Slots int           // number of slots
	Limit time.Duration // time after which a slot is freed for others; if 0, it never is
	// Lock guards the Queue: callers of its methods hold it.
	Lock sync.Locker
	// Turn is called with Lock held when there may be a slot for w, which has been
	// removed from the line of waiters. Turn may call methods of the Queue.
	Turn func(w W)
}

// Queue is a number of slots with a line of waiters.
type Queue[W comparable] struct {
	cfg     Config[W]
	free    int
	waiting []W        // first come, first served
	inLine  map[W]bool // the members of waiting
	// given has the slots in the order of their time limits, including released ones. One timer
	// serves all.
	given []*Slot
	timer *time.Timer
	armed bool
}

// Slot is the right to run one operation. Config.Lock guards it.
type Slot struct {
	held  bool
	until time.Time
}

// New returns a Queue with all slots free.
func New[W comparable](cfg Config[W]) *Queue[W] {
	return &Queue[W]{cfg: cfg, free: cfg.Slots, inLine: map[W]bool{}}
}

// Acquire returns a slot for w. If no slot is free, or if w is already in the line of
// waiters, it returns nil. w is then in the line, once.
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

// arm starts the timer. A running timer is early enough: the limit is the same for
// all slots.
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
	if q.free == q.cfg.Slots && q.armed { // no slot is left that could reach the limit
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

// Held reports whether a slot was neither released nor freed after its time limit. It returns
// false if s is nil.
func (s *Slot) Held() bool { return s != nil && s.held }

// Free returns the number of free slots.
func (q *Queue[W]) Free() int { return q.free }

// Load returns how many slots are in use, how many there are, and how many waiters are in the line.
func (q *Queue[W]) Load() (running, limit, waiting int) {
	return q.cfg.Slots - q.free, q.cfg.Slots, len(q.waiting)
}
