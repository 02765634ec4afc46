package localapi

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// key names an object of a kind.
type key struct{ namespace, name string }

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// item is an object as it is now. The object is shared and never changed.
type item struct {
	object object
	// file and at are where it is kept, and the revision of that; "" is nowhere.
	file, at string
	// source is who else has it, so that it can only be read here; "" is nobody.
	source string
	size   int // about what it has in memory, in bytes
}

// change is one step from a revision to the next.
type change struct {
	revision uint64
	kind     *kind
	// before and now are nil for what came and what went.
	before, now object
	size        int
	at          time.Time
}

// Bounds of the window that watches resume from. What was changed longer ago is forgotten
// as an API server's etcd forgets it by default, so that a node at rest keeps none.
const (
	maxChanges     = 5000
	maxChangesSize = 32 << 20
	maxChangesAge  = 5 * time.Minute
)

// state is what is served. Whoever has it holds Server.mu.
type state struct {
	revision uint64
	objects  map[*kind]map[key]item
	count    int // of all objects that are kept

	changes []change
	size    int           // of what changes refer to
	changed chan struct{} // closed at the next change
	aging   bool          // somebody is asked to call age
	// later is asked for a call of age after a time.
	later func(time.Duration)
}

func newState(kinds []*kind, later func(time.Duration)) state {
	st := state{objects: map[*kind]map[key]item{}, changed: make(chan struct{}), later: later}
	for _, k := range kinds {
		st.objects[k] = map[key]item{}
	}
	return st
}

// sizer is what types of the API have.
type sizer interface{ Size() int }

// put has an item take effect, with a revision of its own.
func (st *state) put(k *kind, it item) item {
	st.revision++
	it.object.SetResourceVersion(strconv.FormatUint(st.revision, 10))
	it.object.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	it.size = 1 << 10
	if s, ok := it.object.(sizer); ok {
		it.size += 2 * s.Size() // what Go has for it
	}
	name := keyOf(it.object)
	old, was := st.objects[k][name]
	if !was {
		st.count++
	}
	st.objects[k][name] = it
	c := change{revision: st.revision, kind: k, now: it.object, size: it.size}
	if was {
		c.before = old.object
	}
	st.tell(c)
	return it
}

// drop removes an item, and returns it as it was last.
func (st *state) drop(k *kind, name key) object {
	old, ok := st.objects[k][name]
	if !ok {
		return nil
	}
	delete(st.objects[k], name)
	st.count--
	st.revision++
	last := old.object.DeepCopyObject().(object)
	last.SetResourceVersion(strconv.FormatUint(st.revision, 10))
	st.tell(change{revision: st.revision, kind: k, before: last, size: old.size})
	return last
}

func (st *state) tell(c change) {
	c.at = time.Now()
	st.changes = append(st.changes, c)
	st.size += c.size
	st.forget(c.at)
	st.ageLater(c.at)
	close(st.changed)
	st.changed = make(chan struct{})
}

// forget drops the changes that are beyond the window.
func (st *state) forget(now time.Time) {
	n := 0
	for n < len(st.changes) && (len(st.changes)-n > maxChanges || st.size > maxChangesSize && len(st.changes)-n > 1 || now.Sub(st.changes[n].at) >= maxChangesAge) {
		st.size -= st.changes[n].size
		n++
	}
	switch {
	case n == len(st.changes):
		st.changes = nil
	case n > 0:
		clear(st.changes[:n]) // the array may live on
		st.changes = st.changes[n:]
	}
}

// age forgets what has become old, and sees to it that the rest is.
func (st *state) age() {
	now := time.Now()
	st.aging = false
	st.forget(now)
	st.ageLater(now)
}

func (st *state) ageLater(now time.Time) {
	if !st.aging && len(st.changes) > 0 {
		st.aging = true
		st.later(maxChangesAge - now.Sub(st.changes[0].at))
	}
}

// oldest is the first revision that a watch can go on from.
func (st *state) oldest() uint64 {
	if len(st.changes) == 0 {
		return st.revision
	}
	return st.changes[0].revision - 1
}

// since returns the changes after a revision; false means that some of them are
// forgotten.
func (st *state) since(revision uint64) ([]change, bool) {
	if revision < st.oldest() {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(st.changes, revision+1, func(c change, r uint64) int { return cmp.Compare(c.revision, r) })
	return slices.Clone(st.changes[i:]), true
}

// at returns the objects of a kind at a revision, in the order of their names; false
// means that it is forgotten.
func (st *state) at(k *kind, revision uint64) ([]object, bool) {
	changes, ok := st.since(revision)
	if !ok {
		return nil, false
	}
	all := make(map[key]object, len(st.objects[k]))
	for name, it := range st.objects[k] {
		all[name] = it.object
	}
	for _, c := range slices.Backward(changes) {
		switch {
		case c.kind != k:
		case c.before == nil:
			delete(all, keyOf(c.now))
		case c.now == nil:
			all[keyOf(c.before)] = c.before
		default:
			all[keyOf(c.before)] = c.before
		}
	}
	out := make([]object, 0, len(all))
	for _, o := range all {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b object) int { return keyOf(a).compare(keyOf(b)) })
	return out, true
}

// eventOf is a change as it looks to who sees only what is selected; false is no
// event.
func (c *change) eventOf(selects func(object) bool) (watch.EventType, object, bool) {
	was, is := c.before != nil && selects(c.before), c.now != nil && selects(c.now)
	switch {
	case is && was:
		return watch.Modified, c.now, true
	case is:
		return watch.Added, c.now, true
	case was && c.now != nil: // it goes from this watch alone
		last := c.before.DeepCopyObject().(object)
		last.SetResourceVersion(c.now.GetResourceVersion())
		return watch.Deleted, last, true
	case was:
		return watch.Deleted, c.before, true
	default:
		return "", nil, false
	}
}

func parseRevision(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion is %.100q; want a number", s)
	}
	return n, nil
}
