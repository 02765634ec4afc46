// Package slots bounds how much is done at a time, without letting what hangs
// hold up the rest: a slot that is kept for too long goes to the next in line,
// while its work goes on. Thus each piece of work that hangs delays others
// once, and never for longer than that.
//
// A [Queue] belongs to a manager that has a lock and decides under it what to
// do next. It gives nobody a slot unasked: whoever is first in line is asked
// again, by a callback, and may have changed its mind.
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

// Config holds what a Queue needs; all fields but Limit are required.
type Config[W comparable] struct {
	Slots int           // at a time
	Limit time.Duration // after which a slot is given to others; never
	// Lock guards the Queue: whoever calls its methods holds it.
	Lock sync.Locker
	// Turn is told, with Lock held, that there may be a slot for w, which is
	// not in line any more. It may call the Queue.
	Turn func(w W)
}

// Queue is a number of slots, and who waits for them.
type Queue[W comparable] struct {
	cfg     Config[W]
	free    int
	waiting []W        // first come, first served
	inLine  map[W]bool // those of waiting
	// given are the slots in the order in which they reach their limit, those
	// that were given back among them; one timer serves all.
	given []*Slot
	timer *time.Timer
	armed bool
}

// Slot is the right to work. Config.Lock guards it.
type Slot struct {
	held  bool
	until time.Time
}

// New returns a Queue with all slots free.
func New[W comparable](cfg Config[W]) *Queue[W] {
	return &Queue[W]{cfg: cfg, free: cfg.Slots, inLine: map[W]bool{}}
}

// Acquire returns a slot for w, or nil if there is none or w is in line
// already. Then w is in line, once.
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

// arm sets the timer. One that is set fires no later than needed: the limit is
// the same for all.
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

// expire takes the slots away that have reached their limit.
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

// Release gives a slot back and, while any is free, lets those in line have
// their turns. A slot that is nil or was given back already is ignored.
func (q *Queue[W]) Release(s *Slot) {
	if !s.Held() {
		return
	}
	s.held = false
	q.free++
	if q.free == q.cfg.Slots && q.armed { // nobody is left who could reach the limit
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

// Held reports whether a slot has not been given back, nor taken away by its
// limit. It is false for nil.
func (s *Slot) Held() bool { return s != nil && s.held }

// Free is the number of slots that nobody has.
func (q *Queue[W]) Free() int { return q.free }
