package podmgr

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
)

// store holds the wanted pods of all sources. Manager.mu guards it.
type store struct {
	byUID   map[types.UID]*v1.Pod
	byName  map[string]*v1.Pod // by full name
	mirrors map[string]*v1.Pod // by full name
	order   []types.UID
	clashes []Problem // names that two sources have
}

func newStore() store {
	return store{byUID: map[types.UID]*v1.Pod{}, byName: map[string]*v1.Pod{}, mirrors: map[string]*v1.Pod{}}
}

func (s *store) put(p *v1.Pod) {
	name := podmeta.FullName(p.Namespace, p.Name)
	if podmeta.IsMirror(p) {
		s.mirrors[name] = p
		return
	}
	if s.byUID[p.UID] == nil {
		s.order = append(s.order, p.UID)
	}
	s.byUID[p.UID] = p
	s.byName[name] = p
}

func (s *store) drop(p *v1.Pod) {
	name := podmeta.FullName(p.Namespace, p.Name)
	if m := s.mirrors[name]; m != nil && m.UID == p.UID {
		delete(s.mirrors, name)
		return
	}
	if s.byUID[p.UID] == nil {
		return
	}
	delete(s.byUID, p.UID)
	s.order = slices.DeleteFunc(s.order, func(u types.UID) bool { return u == p.UID })
	// The name may belong to a pod with another UID by now.
	if n := s.byName[name]; n != nil && n.UID == p.UID {
		delete(s.byName, name)
	}
}

func (s *store) list() []*v1.Pod {
	out := make([]*v1.Pod, 0, len(s.order))
	for _, u := range s.order {
		out = append(out, s.byUID[u])
	}
	return out
}

// merge compares a source's new state with its last and queues what changed.
func (m *Manager) merge(source string, snap Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.sources[source]
	ops := map[Op][]*v1.Pod{}
	seen := map[types.UID]bool{}
	names := map[string]bool{}
	st.waiting = nil
	m.store.clashes = slices.DeleteFunc(m.store.clashes, func(p Problem) bool { return p.Source == source })
	for _, p := range snap.Pods {
		name := podmeta.FullName(p.Namespace, p.Name)
		if names[name] || seen[p.UID] {
			field := "metadata.name"
			if !names[name] {
				field = "metadata.uid"
			}
			m.store.clashes = append(m.store.clashes, Problem{
				Source: source, Pod: p.Namespace + "/" + p.Name, Field: field, Reason: "the source has another pod with it before this one",
			})
			continue
		}
		if clash, ok := m.clash(source, st, p); ok {
			m.store.clashes = append(m.store.clashes, clash)
			st.waiting = append(st.waiting, p)
			continue
		}
		names[name], seen[p.UID] = true, true
		m.mergePod(source, st, p, ops)
	}
	for _, uid := range slices.Sorted(maps.Keys(st.pods)) {
		if !seen[uid] {
			p := st.pods[uid]
			delete(st.pods, uid)
			m.store.drop(p)
			ops[Remove] = append(ops[Remove], p)
		}
	}
	// The name of a pod that went may be that of one that came.
	for _, p := range st.pods {
		if name := podmeta.FullName(p.Namespace, p.Name); m.store.byName[name] == nil && !podmeta.IsMirror(p) {
			m.store.byName[name] = p
		}
	}
	m.logProblems(st.snapshot.Problems, snap.Problems)
	var configs []Object
	if st.spoken {
		was := st.snapshot
		configs = union(changed("ConfigMap", was.ConfigMaps, snap.ConfigMaps), changed("Secret", was.Secrets, snap.Secrets))
		configs = union(configs, union(changed(kindClaim, was.Claims, snap.Claims), changed(kindVolume, was.Volumes, snap.Volumes)))
	}
	m.send(source, ops, !st.spoken, configs)
	snap.Pods = nil
	st.snapshot, st.spoken = snap, true
	m.admitWaiting()
	m.met.observe(m)
}

// changed are the objects of a kind that one list has otherwise than the other,
// or not at all.
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
		if !ok || !equality.Semantic.DeepEqual(was, o) {
			out = append(out, Object{kind, k.namespace, k.name})
		}
		delete(were, k)
	}
	for k := range were {
		out = append(out, Object{kind, k.namespace, k.name})
	}
	return out
}

// clash tells whether a pod of another source has the name or the UID of p.
func (m *Manager) clash(source string, st *sourceState, p *v1.Pod) (Problem, bool) {
	if podmeta.IsMirror(p) {
		return Problem{}, false
	}
	other, field := m.store.byName[podmeta.FullName(p.Namespace, p.Name)], "metadata.name"
	if other == nil || st.pods[other.UID] != nil {
		other, field = m.store.byUID[p.UID], "metadata.uid"
	}
	if other == nil || st.pods[other.UID] != nil {
		return Problem{}, false
	}
	return Problem{
		Source: source, Pod: p.Namespace + "/" + p.Name, Field: field,
		Reason: "a pod of source " + other.Annotations[podmeta.AnnotationSource] + " has it already",
	}, true
}

// admitWaiting lets in the pods whose name and UID have come free.
func (m *Manager) admitWaiting() {
	for _, s := range m.cfg.Sources {
		source, st := s.Name(), m.sources[s.Name()]
		ops := map[Op][]*v1.Pod{}
		st.waiting = slices.DeleteFunc(st.waiting, func(p *v1.Pod) bool {
			if _, ok := m.clash(source, st, p); ok {
				return false
			}
			m.mergePod(source, st, p, ops)
			m.store.clashes = slices.DeleteFunc(m.store.clashes, func(c Problem) bool {
				return c.Source == source && c.Pod == p.Namespace+"/"+p.Name
			})
			return true
		})
		if len(ops) > 0 {
			m.send(source, ops, false, nil)
		}
	}
}

// send queues the changes of one merge.
func (m *Manager) send(source string, ops map[Op][]*v1.Pod, first bool, configs []Object) {
	m.queue.turn++
	for _, op := range []Op{Remove, Add, Update, Delete, Reconcile} {
		m.queue.pods(op, source, ops[op])
	}
	if first && len(ops[Add])+len(ops[Update])+len(ops[Delete]) == 0 {
		m.queue.notice(rankEmpty, source)
	}
	if len(configs) > 0 {
		m.queue.notice(rankConfig, source, configs...)
	}
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// mergePod compares one pod with its last version.
func (m *Manager) mergePod(source string, st *sourceState, p *v1.Pod, ops map[Op][]*v1.Pod) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[podmeta.AnnotationSource] = source
	old := st.pods[p.UID]
	if old == nil {
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
	if op == Reconcile {
		c := old.DeepCopy()
		c.Status = p.Status
		p = c
	}
	st.pods[p.UID] = p
	m.store.put(p)
	ops[op] = append(ops[op], p)
}

// compare tells what changed between two versions of a pod.
func compare(old, now *v1.Pod) (op Op, changed bool) {
	same := equality.Semantic.DeepEqual
	meaning := same(old.Spec, now.Spec) && same(old.Labels, now.Labels) &&
		same(old.DeletionTimestamp, now.DeletionTimestamp) &&
		same(old.DeletionGracePeriodSeconds, now.DeletionGracePeriodSeconds) &&
		same(foreign(old.Annotations), foreign(now.Annotations))
	switch {
	case !meaning && now.DeletionTimestamp == nil:
		return Update, true
	case !meaning, now.DeletionTimestamp != nil:
		return Delete, true
	case !same(old.Status, now.Status):
		return Reconcile, true
	default:
		return 0, false
	}
}

// foreign leaves out the annotations that this package sets itself.
func foreign(a map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range a {
		switch k {
		case podmeta.AnnotationSource, podmeta.AnnotationSeen, podmeta.AnnotationMirror:
		default:
			out[k] = v
		}
	}
	return out
}

// logProblems logs each problem once, and that it is over.
func (m *Manager) logProblems(old, now []Problem) {
	for _, p := range now {
		if !slices.Contains(old, p) {
			m.cfg.Log.Warn("manifest is not in effect", zap.String("file", p.File), zap.Int("document", p.Document),
				zap.String("pod", p.Pod), zap.String("field", p.Field), zap.String("reason", p.Reason), zap.Bool("lastGoodKept", p.Kept))
		}
	}
	for _, p := range old {
		if !slices.ContainsFunc(now, func(q Problem) bool { return q.File == p.File && q.Document == p.Document }) {
			m.cfg.Log.Info("manifest is in order again", zap.String("file", p.File), zap.Int("document", p.Document))
		}
	}
}
