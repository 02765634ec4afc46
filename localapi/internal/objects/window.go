package objects

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Step is one step from a revision to the next.
type Step struct {
	Revision uint64
	Kind     Kind
	// Before and Now are nil for what came and what went.
	Before, Now Object

	size int
	at   time.Time
}

// Bounds of the window that watches resume from. What was changed longer ago is forgotten
// as an API server's etcd forgets it by default, so that a node at rest keeps none.
const (
	maxSteps     = 5000
	maxStepsSize = 32 << 20
	maxStepsAge  = 5 * time.Minute
)

// window has the last steps.
type window struct {
	steps []Step
	size  int           // of what steps refer to
	moved chan struct{} // closed at the next step
	aging *time.Timer   // of the oldest step; nil if there is none
}

func (w *window) add(c Step) {
	c.at = time.Now()
	w.steps = append(w.steps, c)
	w.size += c.size
	w.forget(c.at)
	close(w.moved)
	w.moved = make(chan struct{})
}

// forget drops the steps that are beyond the window.
func (w *window) forget(now time.Time) {
	n := 0
	for n < len(w.steps) && (len(w.steps)-n > maxSteps || w.size > maxStepsSize && len(w.steps)-n > 1 || now.Sub(w.steps[n].at) >= maxStepsAge) {
		w.size -= w.steps[n].size
		n++
	}
	switch {
	case n == len(w.steps):
		w.steps = nil
	case n > 0:
		clear(w.steps[:n]) // the array may live on
		w.steps = w.steps[n:]
	}
}

// age forgets what has become old, and sees to it that the rest is. s.mu is held.
func (s *Set) age() {
	if s.window.aging != nil || len(s.window.steps) == 0 || s.closed {
		return
	}
	s.window.aging = time.AfterFunc(maxStepsAge-time.Since(s.window.steps[0].at), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.window.aging = nil
		s.window.forget(time.Now())
		s.age()
	})
}

// Close ends what the Set does by itself: old steps are not forgotten any more.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.window.aging != nil {
		s.window.aging.Stop()
	}
}

// Bounds are the first revision that a watch can go on from, and the last one that there is.
func (s *Set) Bounds() (oldest, now uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest(), s.revision
}

func (s *Set) oldest() uint64 {
	if len(s.window.steps) == 0 {
		return s.revision
	}
	return s.window.steps[0].Revision - 1
}

// Since returns the steps after a revision, and a channel that is closed at the next one; false means that some of
// them are forgotten.
func (s *Set) Since(revision uint64) ([]Step, <-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps, ok := s.since(revision)
	return steps, s.window.moved, ok
}

func (s *Set) since(revision uint64) ([]Step, bool) {
	if revision < s.oldest() {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(s.window.steps, revision+1, func(c Step, r uint64) int { return cmp.Compare(c.Revision, r) })
	return slices.Clone(s.window.steps[i:]), true
}

// At returns the objects of a kind at a revision, in the order of their names; false means that it is forgotten, or
// still to come. Revision 0 is the last one. It returns the revision as well.
func (s *Set) At(k Kind, revision uint64) ([]Object, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == 0 {
		revision = s.revision
	}
	steps, ok := s.since(revision)
	if !ok || revision > s.revision {
		return nil, revision, false
	}
	all := make(map[Key]Object, len(s.entries[k]))
	for name, e := range s.entries[k] {
		all[name] = e.Object
	}
	for _, c := range slices.Backward(steps) {
		switch {
		case c.Kind != k:
		case c.Before == nil:
			delete(all, KeyOf(c.Now))
		default:
			all[KeyOf(c.Before)] = c.Before
		}
	}
	out := make([]Object, 0, len(all))
	for _, o := range all {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Object) int { return KeyOf(a).Compare(KeyOf(b)) })
	return out, revision, true
}

// EventOf is a step as it looks to who sees only what is selected; false is no event.
func (c *Step) EventOf(selects func(Object) bool) (watch.EventType, Object, bool) {
	was, is := c.Before != nil && selects(c.Before), c.Now != nil && selects(c.Now)
	switch {
	case is && was:
		return watch.Modified, c.Now, true
	case is:
		return watch.Added, c.Now, true
	case was && c.Now != nil: // it goes from this watch alone
		last := c.Before.DeepCopyObject().(Object)
		last.SetResourceVersion(c.Now.GetResourceVersion())
		return watch.Deleted, last, true
	case was:
		return watch.Deleted, c.Before, true
	default:
		return "", nil, false
	}
}
