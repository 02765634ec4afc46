package podmgr

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// queue holds changes that were not received yet. It has one entry per pod, so its size is
// limited by the pods that the receiver knows and those that are wanted. Manager.mu guards it.
type queue struct {
	entries map[entryKey]*entry
	turn    int             // number of the current snapshot: entries of an earlier snapshot are received first
	seq     int             // orders the pods of one change
	told    map[string]bool // sources of which the receiver has got a change
}

// entryKey identifies an entry: by UID and name of its pod, or by name and rank of its source
// if it has no pod. The name of a pod is part of the key since an edited manifest may give the
// same UID to another pod, which is not an update.
type entryKey struct {
	uid  types.UID
	name string
	rank int // 0 for an entry with a pod
}

// entry is one change that was not received yet: of a pod, or of a source as a whole.
type entry struct {
	rank    int
	turn    int
	seq     int
	source  string
	pod     *v1.Pod  // nil if the entry is about a source: its first snapshot, or changed objects
	configs []Object // objects that changed
	// then is the entry of a static pod that was added again before its removal was received. Both
	// entries are sent, so that the pod restarts.
	then *entry
}

// The ranks order the changes of one snapshot. The receiver has to handle lower ranks first.
const (
	rankRemove = iota
	rankAdd
	rankUpdate
	rankDelete
	rankEmpty // the first snapshot of a source has no pods
	rankReconcile
	rankConfig // a ConfigMap or a Secret changed
)

// rankOf and opOf convert between operations and ranks. A rank that rankOf does not have becomes an
// Add or an Update without pods.
var rankOf = map[Op]int{Remove: rankRemove, Add: rankAdd, Update: rankUpdate, Delete: rankDelete, Reconcile: rankReconcile}

var opOf = [...]Op{Remove, Add, Update, Delete, Add, Reconcile, Update}

func newQueue() queue {
	return queue{entries: map[entryKey]*entry{}, told: map[string]bool{}}
}

// pods queues the operation op for each of the pods.
func (q *queue) pods(op Op, source string, pods []*v1.Pod) {
	for _, p := range pods {
		q.add(&entry{rank: rankOf[op], turn: q.turn, source: source, pod: p})
	}
}

// notice queues a change of objects other than pods.
func (q *queue) notice(rank int, source string, configs ...Object) {
	q.add(&entry{rank: rank, turn: q.turn, source: source, configs: configs})
}

// keyOf returns the key of e. A source has one entry without a pod for each rank.
func keyOf(e *entry) entryKey {
	if e.pod == nil {
		return entryKey{name: e.source, rank: e.rank}
	}
	return entryKey{uid: e.pod.UID, name: podmeta.FullName(e.pod.Namespace, e.pod.Name)}
}

// add queues e, or merges it with the entry of the same key. The caller must not use e any more.
func (q *queue) add(e *entry) {
	if then := e.then; then != nil { // of an entry that is put back
		e.then = nil
		defer q.add(then)
	}
	q.seq++
	e.seq = q.seq
	if e.rank == rankAdd { // reports as well that the source has spoken
		delete(q.entries, entryKey{name: e.source, rank: rankEmpty})
	}
	k := keyOf(e)
	old := q.entries[k]
	if old == nil {
		q.entries[k] = e
		return
	}
	// A static pod was removed and added again. Both changes must be received, so that the old
	// pod ends.
	if old.rank == rankRemove && e.pod != nil && podmeta.IsStatic(e.pod) {
		old.then = old.then.before(e)
		return
	}
	both := old.with(e)
	if both == nil {
		delete(q.entries, k)
		if !q.told[old.source] { // that it has spoken must still be told
			q.notice(rankEmpty, old.source)
		}
		return
	}
	q.entries[k] = both
}

// before merges e with the later entry next, both of a pod whose removal is still queued. e may be
// nil. It returns nil if e and next cancel out.
func (e *entry) before(next *entry) *entry {
	if e == nil {
		if next.rank == rankRemove {
			return nil
		}
		return next
	}
	return e.with(next)
}

// with merges e with the later entry next. It returns nil if e and next cancel out. The result
// keeps the position of e in the queue, so that a pod that keeps changing is not delayed for
// ever.
func (e *entry) with(next *entry) *entry {
	rank, something := follow(e.rank, next.rank, next.pod)
	if !something {
		return nil
	}
	return &entry{rank: rank, turn: e.turn, seq: e.seq, source: next.source, pod: next.pod, configs: union(e.configs, next.configs)}
}

// union returns the objects of all lists, sorted and each once.
func union(lists ...[]Object) []Object {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(x, y Object) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return slices.Compact(all)
}

// follow merges two changes of a pod into one. now is the latest version of the pod. something is
// false if the changes cancel out.
func follow(first, second int, now *v1.Pod) (rank int, something bool) {
	switch {
	case first == rankAdd && second == rankRemove:
		return 0, false
	case first == rankAdd:
		return rankAdd, true
	// For pods that are not static, a removal and an addition make an update: the
	// receiver still has the pod.
	case first == rankRemove && second == rankAdd && now.DeletionTimestamp != nil:
		return rankDelete, true
	case first == rankRemove && second == rankAdd:
		return rankUpdate, true
	// The receiver acts on the pod anyway, and finds the status in it.
	case second == rankReconcile:
		return first, true // it takes the new status along
	default:
		return second, true
	}
}

// taken is a change with the entries that it was made from, which putBack needs.
type taken struct {
	Change
	of []*entry
}

// take removes and returns the next change. It is the change with the lowest rank of the oldest
// snapshot.
func (q *queue) take() (taken, bool) {
	if len(q.entries) == 0 {
		return taken{}, false
	}
	all := make([]*entry, 0, len(q.entries))
	for _, e := range q.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.rank, b.rank), cmp.Compare(a.source, b.source), cmp.Compare(a.seq, b.seq))
	})
	first := all[0]
	// All entries with the turn, source and rank of the first entry go into one change.
	t := taken{Change: Change{Op: opOf[first.rank], Source: first.source}}
	for _, e := range all {
		same := e.turn == first.turn && e.source == first.source
		// Changed ConfigMaps and Secrets go into the last change of their turn.
		config := same && e.rank == rankConfig
		if !config && (!same || e.rank != first.rank) {
			break
		}
		if e.pod != nil {
			t.Pods = append(t.Pods, e.pod)
		}
		t.Configs = append(t.Configs, e.configs...)
		delete(q.entries, keyOf(e))
		// What follows a removal is a change of its own, and comes next.
		if e.then != nil {
			q.entries[keyOf(e.then)] = e.then
			e.then = nil
		}
		t.of = append(t.of, e)
	}
	return t, true
}

// putBack undoes take. Entries that were queued since then are merged into the entries that come
// back.
func (q *queue) putBack(t taken) {
	since := q.entries
	q.entries = map[entryKey]*entry{}
	for _, e := range t.of {
		q.entries[keyOf(e)] = e
	}
	later := make([]*entry, 0, len(since))
	for _, e := range since {
		later = append(later, e)
	}
	slices.SortFunc(later, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	for _, e := range later {
		q.add(e)
	}
}
