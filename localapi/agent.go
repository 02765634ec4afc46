package localapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

var (
	_ statusmgr.Sink   = (*Server)(nil)
	_ statusmgr.Pruner = (*Server)(nil)
)

func podField(p *v1.Pod) zap.Field { return zap.String("pod", p.Namespace+"/"+p.Name) }

func errField(err error) zap.Field { return zap.Error(err) }

// want signals the source if a change of an object may affect the delivered pods. old and current
// are the entries of the object before and after the change.
func (s *Server) want(k objects.Kind, old, current objects.Entry) {
	before, now := s.owned(old), s.owned(current)
	if k == s.events || k.Type().Group == leasesV1.Group || before == nil && now == nil ||
		before != nil && now != nil && sameForAgent(before, now) {
		return
	}
	s.wanted.Set()
}

// owned returns the object of an entry if the object belongs to clients, and nil
// otherwise.
func (*Server) owned(e objects.Entry) object {
	if e.Object == nil || e.Origin != objects.Owned {
		return nil
	}
	return e.Object
}

// Source delivers the pods that clients have created, with the objects that they refer to. The
// agent treats them like pods of an API server: a deletionTimestamp ends a pod, and the Sink
// gets a call when the pod has ended.
func (s *Server) Source() podmgr.Source { return source{s} }

type source struct{ s *Server }

func (source) Name() string { return podmeta.SourceAPI }

// Run delivers whenever something other than the status of a pod has changed. It waits until the
// Server's Run has loaded the objects.
func (o source) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	select {
	case <-o.s.loaded:
	case <-ctx.Done():
		return nil
	}
	var last map[types.UID]given
	for first := true; ; first = false {
		now := o.s.delivered()
		next, changed := make(map[types.UID]given, len(now)), first || len(now) != len(last)
		for _, obj := range now {
			g, had := last[obj.GetUID()]
			if !had || !sameForAgent(g.of, obj) {
				c := obj.DeepCopyObject().(object)
				c.SetManagedFields(nil)
				g.copy, changed = c, true
			}
			g.of = obj
			next[obj.GetUID()] = g
		}
		if changed {
			deliver(snapshotOf(now, next))
		}
		last = next
		select {
		case <-o.s.wanted:
		case <-ctx.Done():
			return nil
		}
	}
}

// given is a stored object with the copy that was delivered to the agent. If nothing has changed
// for the agent, the same copy is delivered again, so the agent need not compare it.
type given struct {
	of   object
	copy runtime.Object
}

// delivered returns the objects to deliver to the agent, in order.
func (s *Server) delivered() []object {
	var out []object
	for _, k := range s.kinds {
		if k == s.nodes || k == s.namespaces || k.memory || k.Group == leasesV1.Group {
			continue
		}
		from := len(out)
		for _, it := range s.set.List(k, "") {
			if p, ok := it.Object.(*v1.Pod); it.Origin == objects.Owned && (!ok || p.Spec.NodeName != "") {
				out = append(out, it.Object)
			}
		}
		slices.SortFunc(out[from:], func(a, b object) int { return keyOf(a).Compare(keyOf(b)) })
	}
	return out
}

// sameForAgent reports whether two versions of an object differ only in what the agent itself has
// written, so that it need not be delivered again.
func sameForAgent(a, b object) bool {
	if a == b {
		return true
	}
	p, ok := a.(*v1.Pod)
	q, also := b.(*v1.Pod)
	if !ok || !also {
		return false
	}
	return p.UID == q.UID && p.Generation == q.Generation && p.DeletionTimestamp.Equal(q.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(&p.Spec, &q.Spec) && equality.Semantic.DeepEqual(p.Labels, q.Labels) &&
		equality.Semantic.DeepEqual(p.Annotations, q.Annotations) &&
		equality.Semantic.DeepEqual(objects.Others(p.Status.Conditions), objects.Others(q.Status.Conditions)) &&
		podmeta.IsTerminal(p.Status.Phase) == podmeta.IsTerminal(q.Status.Phase)
}

// snapshotOf returns a snapshot with the agent's copies of objects.
func snapshotOf(objects []object, copies map[types.UID]given) (out podmgr.Snapshot) {
	for _, o := range objects {
		switch o := copies[o.GetUID()].copy.(type) {
		case *v1.Pod:
			out.Pods = append(out.Pods, o)
		case *v1.ConfigMap:
			out.ConfigMaps = append(out.ConfigMaps, o)
		case *v1.Secret:
			out.Secrets = append(out.Secrets, o)
		case *v1.PersistentVolumeClaim:
			out.Claims = append(out.Claims, o)
		case *v1.PersistentVolume:
			out.Volumes = append(out.Volumes, o)
		case *resourcev1.ResourceClaim:
			if o.Status.Allocation != nil {
				out.ResourceClaims = append(out.ResourceClaims, o)
			}
		}
	}
	return out
}

// Update stores the status of a pod from the agent (statusmgr.Sink). The status of a finished pod
// is kept over a restart, and its phase no longer changes. The error is statusmgr.ErrGone if the
// pod does not exist any more.
func (s *Server) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	select {
	case <-s.loaded:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.report(ctx, pod, objects.Status, &v1.Pod{Status: status})
}

// Delete removes a deleted pod from the API after everything of it is removed from the node
// (statusmgr.Sink). The error is statusmgr.ErrGone if the pod does not exist any more.
func (s *Server) Delete(ctx context.Context, pod *v1.Pod) error {
	return s.report(ctx, pod, objects.Gone, nil)
}

// Prune removes the pods whose manifests are gone. It keeps pods whose UIDs are in keep, since the
// agent still has containers or files of these (statusmgr.Pruner).
func (s *Server) Prune(keep map[types.UID]bool) error {
	for _, it := range s.set.List(s.pods, "") {
		if uid := it.Object.GetUID(); it.Origin == objects.Mirrored && it.Phase() == objects.Ending && !keep[uid] {
			s.note(change{Kind: s.pods, Key: keyOf(it.Object), Actor: objects.Agent, Verb: objects.Gone, UID: uid})
			s.soon()
		}
	}
	return nil
}

// report stores what the agent reports about a pod. It waits for the disk only if the change has
// to be on disk.
func (s *Server) report(ctx context.Context, pod *v1.Pod, verb objects.Verb, o object) error {
	ch := change{Kind: s.pods, Key: keyOf(pod), Actor: objects.Agent, Verb: verb, Object: o, UID: pod.UID, By: itself}
	_, err := s.set.Note(ch)
	if errors.Is(err, objects.ErrTurn) {
		var t *turn
		if t, err = s.turn(ctx); err != nil {
			return err
		}
		defer t.End()
		_, err = t.apply(ch)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && s.other(pod) {
		return statusmgr.ErrGone
	}
	return err
}

// other reports whether the pod does not exist, or another pod has its name.
func (s *Server) other(pod *v1.Pod) bool {
	it, ok := s.item(s.pods, keyOf(pod))
	return !ok || it.Object.GetUID() != pod.UID
}

// Restore sets the statuses that pods had before a restart, until the agent reports new ones. It
// does not wait: a pod that is loaded later gets its status when it is loaded.
func (s *Server) Restore(statuses map[types.UID]v1.PodStatus) {
	kept := map[types.UID]v1.PodStatus{}
	for uid, st := range statuses {
		kept[uid] = *st.DeepCopy()
	}
	s.restored.Store(&kept)
	for _, it := range s.set.List(s.pods, "") {
		p := it.Object.(*v1.Pod)
		if st, ok := kept[p.UID]; ok && p.Status.StartTime == nil {
			s.note(change{Kind: s.pods, Key: keyOf(p), Actor: objects.Agent, Verb: objects.Status, Object: &v1.Pod{Status: st}, UID: p.UID})
		}
	}
}

// asRestored sets the status that a pod had before a restart.
func (s *Server) asRestored(o object) {
	kept := s.restored.Load()
	if p, ok := o.(*v1.Pod); ok && kept != nil && p.Status.StartTime == nil {
		if st, ok := (*kept)[p.UID]; ok {
			p.Status = objects.Merge(st, &p.Status)
		}
	}
}

// note makes a change that is only in memory. A rejected change is only logged: the object has
// changed meanwhile.
func (s *Server) note(ch change) {
	if _, err := s.set.Note(ch); err != nil {
		s.cfg.Log.Debug("dropped change of an object that has changed meanwhile", zap.String("name", ch.Key.Namespace+"/"+ch.Key.Name), zap.Error(err))
	}
}

// soon wakes followLater without blocking.
func (s *Server) soon() {
	s.later.Set()
}

// Show returns a source that delivers the same pods as src, and shows its objects in this API.
// Clients can read these objects and their statuses; they can be changed only in src. If src no
// longer delivers a pod, or has replaced it, the pod is Terminating until the agent has removed
// everything of it ([Server.Prune]).
func (s *Server) Show(src podmgr.Source) podmgr.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources++
	return shown{src, s}
}

// allShown reports whether every source has delivered, so that all objects from manifests are
// known.
func (s *Server) allShown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shown) == s.sources
}

type shown struct {
	podmgr.Source

	s *Server
}

// Kind returns the kind of the wrapped source.
func (o shown) Kind() podmgr.Kind { return podmgr.KindOf(o.Source) }

func (o shown) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	return o.Source.Run(ctx, func(snap podmgr.Snapshot) {
		o.s.show(o.Source.Name(), o.Kind() == podmgr.Static, &snap)
		deliver(snap)
	})
}

// show replaces the objects that a source delivered before by those that it delivers now. Static
// pods are shown as mirror pods, as in a cluster, so that kubectl drain ignores them.
func (s *Server) show(name string, static bool, snap *podmgr.Snapshot) {
	want := map[*kind]map[key]object{}
	add := func(k *kind, o object) {
		if want[k] == nil {
			want[k] = map[key]object{}
		}
		want[k][keyOf(o)] = o
	}
	for _, k := range s.kinds {
		switch k.Kind {
		case "Pod":
			each(snap.Pods, func(o *v1.Pod) { add(k, o) })
		case "ConfigMap":
			each(snap.ConfigMaps, func(o *v1.ConfigMap) { add(k, o) })
		case "Secret":
			each(snap.Secrets, func(o *v1.Secret) { add(k, o) })
		case "PersistentVolumeClaim":
			each(snap.Claims, func(o *v1.PersistentVolumeClaim) { add(k, o) })
		case "PersistentVolume":
			each(snap.Volumes, func(o *v1.PersistentVolume) { add(k, o) })
		case "ResourceClaim":
			each(snap.ResourceClaims, func(o *resourcev1.ResourceClaim) { add(k, o) })
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, names := range s.shown[name] {
		for n := range names {
			if want[k][n] == nil {
				s.note(change{Kind: k, Key: n, Actor: objects.File, Verb: objects.Hide, Source: name})
			}
		}
	}
	before := s.shown[name]
	s.shown[name] = want
	for k, all := range want {
		for n, o := range all {
			// This object is shown already.
			if it, _ := s.item(k, n); before[k][n] == o && it.Phase() == objects.Live && it.Origin == objects.Mirrored && it.Source == name && it.Next == nil {
				continue
			}
			c := o.DeepCopyObject().(object)
			if p, ok := c.(*v1.Pod); ok {
				if p.Annotations == nil {
					p.Annotations = map[string]string{}
				}
				p.Annotations[podmeta.AnnotationSource] = name
				if static {
					p.Annotations[podmeta.AnnotationMirror] = cmp.Or(p.Annotations[podmeta.AnnotationHash], string(p.UID))
				}
			}
			s.showOne(name, k, c)
		}
	}
	s.soon()
}

func each[T any](list []*T, f func(*T)) {
	for _, o := range list {
		if o != nil {
			f(o)
		}
	}
}

// showOne shows an object, unless a client has created one with the same name.
func (s *Server) showOne(name string, k *kind, o object) {
	if o.GetUID() == "" {
		o.SetUID(newUID())
	}
	if c := o.GetCreationTimestamp(); c.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	if p, ok := o.(*v1.Pod); ok && p.Status.Phase == "" {
		p.Status.Phase = v1.PodPending
	}
	if _, ok := s.item(s.namespaces, key{Name: o.GetNamespace()}); !ok && k.namespaced {
		n := madeNamespace(o.GetNamespace())
		s.note(change{Kind: s.namespaces, Key: keyOf(n), Actor: objects.Agent, Verb: objects.Create, Object: n})
	}
	s.note(change{Kind: k, Key: keyOf(o), Actor: objects.File, Verb: objects.Show, Object: o, Source: name})
}
