package objects

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Step is the change from one revision to the next.
type Step struct {
	Revision uint64
	Kind     Kind
	// Before is nil for a new object, and Now for a removed one.
	Before, Now Object

	size int
	at   time.Time
}

// Limits of the changes that are kept, from which watches can resume. An API server also keeps
// changes for five minutes by default (etcd's compaction). Without changes, the window becomes
// empty.
const (
	maxSteps     = 5000
	maxStepsSize = 32 << 20
	maxStepsAge  = 5 * time.Minute
)

// window has the most recent changes.
type window struct {
	steps []Step
	size  int           // size of the objects in steps
	moved chan struct{} // closed at the next step
	aging *time.Timer   // timer for the oldest step; nil if there is none
}

func (w *window) add(c Step) {
	c.at = time.Now()
	w.steps = append(w.steps, c)
	w.size += c.size
	w.forget(c.at)
	close(w.moved)
	w.moved = make(chan struct{})
}

// forget removes the steps that are outside of the limits.
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
		clear(w.steps[:n]) // the backing array may be kept
		w.steps = w.steps[n:]
	}
}

// age removes old steps, and sets a timer for the remaining ones. The caller holds s.mu.
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

// Close stops the timer of the Set: old steps are no longer removed.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.window.aging != nil {
		s.window.aging.Stop()
	}
}

// Bounds returns the first revision from which a watch can resume, and the current one.
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

// maxSince limits the steps that a watch gets at a time. A watch keeps its steps in memory
// until it has sent them, even if the window drops them.
const maxSince = 100

// Since returns at most maxSince steps after a revision, and a channel that is closed at the next
// step. The channel is nil if more steps are available now. False means that some of the steps
// after the revision have been dropped.
func (s *Set) Since(revision uint64) ([]Step, <-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps, ok := s.since(revision)
	if len(steps) > maxSince {
		return slices.Clone(steps[:maxSince]), nil, ok
	}
	return slices.Clone(steps), s.window.moved, ok
}

// since returns the steps after a revision. The caller holds s.mu, and must not use the steps
// after releasing it.
func (s *Set) since(revision uint64) ([]Step, bool) {
	if revision < s.oldest() {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(s.window.steps, revision+1, func(c Step, r uint64) int { return cmp.Compare(c.Revision, r) })
	return s.window.steps[i:], true
}

// At returns the objects of a kind at a revision, sorted by key, and the revision. Revision 0
// means the current one. False means that the revision has been dropped or does not exist yet.
func (s *Set) At(k Kind, revision uint64) ([]Object, uint64, bool) {
	now, steps, revision, ok := s.moment(k, revision)
	if !ok {
		return nil, revision, false
	}
	before := map[Key]Object{} // of objects that have changed since
	for _, c := range slices.Backward(steps) {
		if c.Before == nil {
			before[KeyOf(c.Now)] = nil
		} else {
			before[KeyOf(c.Before)] = c.Before
		}
	}
	out := make([]Object, 0, now.Len()+len(before))
	within(now, "", func(at located) bool {
		if _, changed := before[at.Key]; !changed {
			out = append(out, at.Object)
		}
		return true
	})
	if len(before) == 0 {
		return out, revision, true
	}
	for _, o := range before {
		if o != nil {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Object) int { return KeyOf(a).Compare(KeyOf(b)) })
	return out, revision, true
}

// moment returns the current objects of a kind, and the steps of the kind since a revision.
func (s *Set) moment(k Kind, revision uint64) (*tree, []Step, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == 0 {
		revision = s.revision
	}
	steps, ok := s.since(revision)
	if !ok || revision > s.revision {
		return nil, nil, revision, false
	}
	of := make([]Step, 0, len(steps))
	for _, c := range steps {
		if c.Kind == k {
			of = append(of, c)
		}
	}
	return s.all(k).Clone(), of, revision, true
}

// EventOf returns the watch event of a step, for a watch of selected objects; false if there is
// none.
func (c *Step) EventOf(selects func(Object) bool) (watch.EventType, Object, bool) {
	was, is := c.Before != nil && selects(c.Before), c.Now != nil && selects(c.Now)
	switch {
	case is && was:
		return watch.Modified, c.Now, true
	case is:
		return watch.Added, c.Now, true
	case was && c.Now != nil: // it is no longer selected by this watch
		last := c.Before.DeepCopyObject().(Object)
		last.SetResourceVersion(c.Now.GetResourceVersion())
		return watch.Deleted, last, true
	case was:
		return watch.Deleted, c.Before, true
	default:
		return "", nil, false
	}
}
