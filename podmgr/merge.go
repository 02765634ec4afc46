package podmgr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// store holds the wanted pods of all sources. Manager.mu guards it.
type store struct {
	// byUID and byName have the pods that run. Mirror pods are in the field mirrors instead: a
	// mirror pod has the name of its static pod and never runs.
	byUID   map[types.UID]*v1.Pod
	byName  map[string]*v1.Pod // by full name
	mirrors map[string]*v1.Pod // by full name
	order   map[types.UID]int  // number in the order of arrival
	came    int                // number of pods that have arrived
	all     []placed           // the pods of byUID, in the order of their arrival
}

// placed is a pod with its number in the order of arrival.
type placed struct {
	at  int
	pod *v1.Pod
}

func newStore() store {
	return store{byUID: map[types.UID]*v1.Pod{}, byName: map[string]*v1.Pod{}, mirrors: map[string]*v1.Pod{}, order: map[types.UID]int{}}
}

// place returns the index in s.all of the pod with that UID, which must be in byUID.
func (s *store) place(uid types.UID) int {
	i, _ := slices.BinarySearchFunc(s.all, s.order[uid], func(p placed, at int) int { return cmp.Compare(p.at, at) })
	return i
}

// put adds a pod, or replaces its previous version, which keeps its place in the order.
func (s *store) put(p *v1.Pod) {
	name := podmeta.FullName(p.Namespace, p.Name)
	if podmeta.IsMirror(p) {
		s.mirrors[name] = p
		return
	}
	if s.byUID[p.UID] == nil {
		s.came++
		s.order[p.UID] = s.came
		s.all = append(s.all, placed{at: s.came, pod: p})
	} else {
		s.all[s.place(p.UID)].pod = p
	}
	s.byUID[p.UID] = p
	s.byName[name] = p
}

// drop removes a pod by UID and name. The stored version of the pod may differ from p.
func (s *store) drop(p *v1.Pod) {
	name := podmeta.FullName(p.Namespace, p.Name)
	// A new mirror pod has the name of the old one and another UID.
	if m := s.mirrors[name]; m != nil && m.UID == p.UID {
		delete(s.mirrors, name)
		return
	}
	if s.byUID[p.UID] == nil {
		return
	}
	i := s.place(p.UID)
	s.all = slices.Delete(s.all, i, i+1)
	delete(s.byUID, p.UID)
	delete(s.order, p.UID)
	// The name may belong to a pod with another UID by now.
	if n := s.byName[name]; n != nil && n.UID == p.UID {
		delete(s.byName, name)
	}
}

// list returns a new slice of the pods, in the
// order in which they came. The pods are shared.
func (s *store) list() []*v1.Pod {
	out := make([]*v1.Pod, len(s.all))
	for i, p := range s.all {
		out[i] = p.pod
	}
	return out
}

// merge compares a source's new snapshot with its last one and queues the changes. The source's
// goroutine calls it. Config.Refused is called without m.mu, so it may call the Manager.
func (m *Manager) merge(source string, snap Snapshot) {
	snap.Problems = bounded(source, snap.Problems)
	before, refused := m.mergeLocked(source, snap)
	m.logProblems(before, snap.Problems)
	if m.cfg.Refused != nil {
		for _, r := range refused {
			m.cfg.Refused(r.pod, fmt.Sprintf("pod from %s is not in effect: %s: %s", source, r.problem.Field, r.problem.Reason))
		}
	}
}

// mergeLocked is the part of merge that needs m.mu. It returns the previous problems and the new
// refusals.
func (m *Manager) mergeLocked(source string, snap Snapshot) (before []Problem, refused []refusal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.sources[source]
	// Waiting and refused pods are found anew with each snapshot.
	st.waiting, st.refused = nil, nil
	ops := map[Op][]*v1.Pod{}
	present, refused := m.mergePods(source, st, snap.Pods, ops)
	m.removeMissing(st, present, ops)
	refused = append(refused, st.frozenPods(source)...)
	st.refused = bounded(source, st.refused)
	refused = st.unreported(refused)
	var configs []Object
	// Objects of the first snapshot are no changes: no pod has used them yet.
	if st.delivered {
		configs = changedObjects(st.snapshot, snap)
	}
	m.send(source, ops, !st.delivered, configs)
	// st.pods has them; a second list would keep old versions in memory.
	snap.Pods = nil
	before = st.snapshot.Problems
	st.snapshot = snap
	// After send, so that the changes are queued when Ready is closed.
	if !st.delivered {
		m.noteFirst(st)
	}
	m.confirm()
	// Pods of other sources may wait for names and UIDs that are free now.
	m.admitWaiting()
	return before, refused
}

// refusal is a pod that is not in effect as its source delivered it.
type refusal struct {
	pod     *v1.Pod
	problem Problem
}

// maxRefusals limits the refusals of one snapshot that are reported.
const maxRefusals = 100

// unreported returns the refusals of pods that the last snapshot did not refuse, at most
// maxRefusals of them. The others are never reported.
func (st *sourceState) unreported(all []refusal) (out []refusal) {
	told := map[types.UID]bool{}
	for _, r := range all {
		if told[r.pod.UID] = true; !st.told[r.pod.UID] && len(out) < maxRefusals {
			out = append(out, r)
		}
	}
	st.told = told
	return out
}

// refuse adds a problem of a pod that only its own source can solve.
func (st *sourceState) refuse(source string, p *v1.Pod, field, reason string) refusal {
	pr := Problem{Source: source, Pod: inOneLine(p.Namespace + "/" + p.Name), Field: field, Reason: reason}
	st.refused = append(st.refused, pr)
	return refusal{p, pr}
}

// mergePods compares the pods of a snapshot with their last versions. It returns the UIDs of the
// pods that are in effect, and the others. m.mu is held.
func (m *Manager) mergePods(source string, st *sourceState, pods []*v1.Pod, ops map[Op][]*v1.Pod) (present map[types.UID]bool, refused []refusal) {
	present = make(map[types.UID]bool, len(pods))
	names := make(map[types.NamespacedName]bool, len(pods))
	for _, p := range pods {
		name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		// If a snapshot has two pods with one name or UID, the first wins, as in the kubelet.
		if names[name] || present[p.UID] {
			field := "metadata.name"
			if !names[name] {
				field = "metadata.uid"
			}
			refused = append(refused, st.refuse(source, p, field, "already used by an earlier pod of the source"))
			continue
		}
		// If the source gave the very same object, there is nothing to compare.
		if st.given[p.UID] != p {
			// The pod waits until the other source drops the pod with the name or UID.
			if pr, ok := m.clash(source, st, p); ok {
				refused = append(refused, refusal{p, pr})
				st.waiting = append(st.waiting, p)
				continue
			}
			m.mergePod(source, st, p, ops)
		}
		names[name], present[p.UID] = true, true
	}
	return present, refused
}

// removeMissing removes the source's pods that are not present. m.mu is held.
func (m *Manager) removeMissing(st *sourceState, present map[types.UID]bool, ops map[Op][]*v1.Pod) {
	var gone []types.UID
	for uid := range st.pods {
		if !present[uid] {
			gone = append(gone, uid)
		}
	}
	if len(gone) == 0 {
		return
	}
	// In a fixed order, since that of a map varies.
	slices.Sort(gone)
	for _, uid := range gone {
		p := st.pods[uid]
		delete(st.pods, uid)
		delete(st.given, uid)
		delete(st.first, uid)
		m.store.drop(p)
		// Pods of kind Managed end with a deletion timestamp, which the source has not
		// set.
		if st.kind == Managed {
			p = withDeletion(p)
		}
		ops[Remove] = append(ops[Remove], p)
	}
	// A new pod may have the name of a removed one.
	for _, p := range st.pods {
		if name := podmeta.FullName(p.Namespace, p.Name); m.store.byName[name] == nil && !podmeta.IsMirror(p) {
			m.store.byName[name] = p
		}
	}
}

// frozenPods returns the pods whose spec has changed under one UID in a field that does not change
// in running containers.
func (st *sourceState) frozenPods(source string) (refused []refusal) {
	for _, uid := range slices.Sorted(maps.Keys(st.first)) {
		p := st.pods[uid]
		if field := frozen(st.first[uid], p); field != "" {
			refused = append(refused, st.refuse(source, p, field,
				"changed under the same UID, so the change has no effect on running containers; give the changed pod another UID (podmeta.HashUID)"))
		}
	}
	return refused
}

// withDeletion returns a copy of a pod with a deletion timestamp. It is for a pod that its source
// no longer names: such a pod ends like one whose deletion was requested.
func withDeletion(p *v1.Pod) *v1.Pod {
	if p.DeletionTimestamp != nil {
		return p
	}
	// Readers share the stored object, so the time goes into a copy.
	p = p.DeepCopy()
	now := metav1.Now()
	p.DeletionTimestamp = &now
	if p.DeletionGracePeriodSeconds == nil {
		p.DeletionGracePeriodSeconds = p.Spec.TerminationGracePeriodSeconds
	}
	return p
}

// changedObjects returns the objects of a source, pods aside, that were added, removed or modified
// between two of its snapshots.
func changedObjects(was, now Snapshot) []Object {
	return union(
		changed("ConfigMap", was.ConfigMaps, now.ConfigMaps),
		changed("Secret", was.Secrets, now.Secrets),
		changed(kindClaim, was.Claims, now.Claims),
		changed(kindVolume, was.Volumes, now.Volumes),
		changed("ResourceClaim", was.ResourceClaims, now.ResourceClaims),
	)
}

// changed returns the objects that were added, removed or modified between the lists old and now,
// in no order. Equal pointers count as unmodified.
func changed[T metav1.Object](kind string, old, now []T) []Object {
	type key struct{ namespace, name string }
	were := map[key]T{}
	for _, o := range old {
		were[key{o.GetNamespace(), o.GetName()}] = o
	}
	var out []Object
	for _, o := range now {
		k := key{o.GetNamespace(), o.GetName()}
		was, ok := were[k]
		if !ok || any(was) != any(o) && !equality.Semantic.DeepEqual(was, o) {
			out = append(out, Object{kind, k.namespace, k.name})
		}
		delete(were, k)
	}
	for k := range were {
		out = append(out, Object{kind, k.namespace, k.name})
	}
	return out
}

// clash reports whether a pod of another source has the name or the UID of p. Mirror pods never
// clash: they have the name of their static pod on purpose. m.mu is held.
func (m *Manager) clash(source string, st *sourceState, p *v1.Pod) (Problem, bool) {
	if podmeta.IsMirror(p) {
		return Problem{}, false
	}
	other, field := m.store.byName[podmeta.FullName(p.Namespace, p.Name)], "metadata.name"
	// The source itself may give a name to another pod of its own, which is no clash.
	if other == nil || st.pods[other.UID] != nil {
		other, field = m.store.byUID[p.UID], "metadata.uid"
	}
	if other == nil || st.pods[other.UID] != nil {
		return Problem{}, false
	}
	return Problem{
		Source: source, Pod: inOneLine(p.Namespace + "/" + p.Name), Field: field,
		Reason: "already used by a pod of source " + other.Annotations[podmeta.AnnotationSource],
	}, true
}

// admitWaiting admits waiting pods whose name and UID are free now, in the order of
// Config.Sources. m.mu is held.
func (m *Manager) admitWaiting() {
	for _, s := range m.cfg.Sources {
		source, st := s.Name(), m.sources[s.Name()]
		ops := map[Op][]*v1.Pod{}
		st.waiting = slices.DeleteFunc(st.waiting, func(p *v1.Pod) bool {
			if _, ok := m.clash(source, st, p); ok {
				return false
			}
			m.mergePod(source, st, p, ops)
			return true
		})
		if len(ops) > 0 {
			m.send(source, ops, false, nil)
		}
	}
}

// send queues the changes of one merge. The order is the kubelet's: removals come first,
// so that names, UIDs and resources are free for additions. m.mu is held.
func (m *Manager) send(source string, ops map[Op][]*v1.Pod, first bool, configs []Object) {
	m.queue.turn++
	for _, op := range []Op{Remove, Add, Update, Delete, Reconcile} {
		m.queue.pods(op, source, ops[op])
	}
	// Receivers count a source as ready with its first change, so there must be one.
	if first && len(ops[Add])+len(ops[Update])+len(ops[Delete]) == 0 {
		m.queue.notice(rankEmpty, source)
	}
	if len(configs) > 0 {
		m.queue.notice(rankConfig, source, configs...)
	}
	// One pending signal is enough: the receiver takes all changes in the queue.
	m.signal.Set()
}

// mergePod compares one pod with its last version. The Manager owns p from here on, and
// annotates it. m.mu is held.
func (m *Manager) mergePod(source string, st *sourceState, p *v1.Pod, ops map[Op][]*v1.Pod) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[podmeta.AnnotationSource] = source
	// The source must not set this annotation.
	delete(p.Annotations, podmeta.AnnotationManaged)
	// For the source named "api" the annotation is not needed.
	if st.kind == Managed || st.kind == API && source != podmeta.SourceAPI {
		p.Annotations[podmeta.AnnotationManaged] = "true"
	}
	old := st.pods[p.UID]
	st.given[p.UID] = p
	if old == nil {
		// The time of the first sight, in the kubelet's format; updates keep it.
		p.Annotations[podmeta.AnnotationSeen] = time.Now().Format(time.RFC3339Nano)
		st.pods[p.UID] = p
		m.store.put(p)
		ops[Add] = append(ops[Add], p)
		return
	}
	p.Annotations[podmeta.AnnotationSeen] = old.Annotations[podmeta.AnnotationSeen]
	op, changed := compare(old, p)
	if !changed {
		return
	}
	// An API server has checked that only mutable fields have changed.
	if op == Update && st.kind != API && st.first[p.UID] == nil && !equality.Semantic.DeepEqual(&old.Spec, &p.Spec) {
		st.first[p.UID] = old
	}
	// Only the status counts: other metadata is neither
	// compared nor copied, as in the kubelet.
	if op == Reconcile {
		c := *old // what it holds is shared, and never changed
		c.Status = p.Status
		p = &c
	}
	st.pods[p.UID] = p
	m.store.put(p)
	ops[op] = append(ops[op], p)
}

// compare returns the operation for the change between two versions of a pod. Owner references,
// resourceVersion and similar metadata are not compared, as in the kubelet.
func compare(old, now *v1.Pod) (op Op, changed bool) {
	same := equality.Semantic.DeepEqual
	// Pointers, since a spec in an interface would be copied.
	meaning := same(&old.Spec, &now.Spec) && same(old.Labels, now.Labels) &&
		same(old.DeletionTimestamp, now.DeletionTimestamp) &&
		same(old.DeletionGracePeriodSeconds, now.DeletionGracePeriodSeconds) &&
		sameForeign(old.Annotations, now.Annotations)
	switch {
	case !meaning && now.DeletionTimestamp == nil:
		return Update, true
	// A pod that is to be deleted is sent with each snapshot that has a new object of it,
	// changed or not, as in the kubelet.
	case !meaning, now.DeletionTimestamp != nil:
		return Delete, true
	case !same(&old.Status, &now.Status):
		return Reconcile, true
	default:
		return 0, false
	}
}

// sameForeign reports whether the annotations are equal, except for the ones that this package
// sets.
func sameForeign(a, b map[string]string) bool {
	// n counts the annotations of a, less those of b.
	n := 0
	for k, v := range a {
		if isOwn(k) {
			continue
		}
		if w, ok := b[k]; !ok || v != w {
			return false
		}
		n++
	}
	for k := range b {
		if !isOwn(k) {
			n--
		}
	}
	return n == 0
}

// isOwn reports whether this package sets an annotation. Such annotations are ignored when pods
// are compared.
func isOwn(annotation string) bool {
	switch annotation {
	case podmeta.AnnotationSource, podmeta.AnnotationSeen, podmeta.AnnotationMirror, podmeta.AnnotationManaged:
		return true
	}
	return false
}
