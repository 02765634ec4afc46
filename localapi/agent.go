package localapi

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/statusmgr"
)

var _ statusmgr.Sink = (*Server)(nil)

func podField(p *v1.Pod) zap.Field { return zap.String("pod", p.Namespace+"/"+p.Name) }

func errField(err error) zap.Field { return zap.Error(err) }

// want informs the source that something may have to be delivered.
func (s *Server) want(k *kind) {
	if k == s.events || k.Group == leasesV1.Group {
		return
	}
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// Source delivers the pods that clients have made, with what they refer to. Its pods
// are those of an API server: they end by their deletionTimestamp, and the Sink hears of
// each end.
func (s *Server) Source() podmgr.Source { return source{s} }

type source struct{ s *Server }

func (source) Name() string { return podmeta.SourceAPI }

// Run delivers whenever something has changed beside the status of pods. It waits for
// the Server's Run.
func (o source) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	select {
	case <-o.s.loaded:
	case <-ctx.Done():
		return nil
	}
	var last []object
	for first := true; ; first = false {
		now := o.s.delivered()
		if first || !slices.EqualFunc(last, now, sameForAgent) {
			deliver(snapshotOf(now))
			last = now
		}
		select {
		case <-o.s.wanted:
		case <-ctx.Done():
			return nil
		}
	}
}

// delivered lists what the agent is to have, in order.
func (s *Server) delivered() []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []object
	for _, k := range s.kinds {
		if k == s.nodes || k == s.namespaces || k == s.events || k.Group == leasesV1.Group {
			continue
		}
		from := len(out)
		for _, it := range s.state.objects[k] {
			if p, ok := it.object.(*v1.Pod); it.source == "" && (!ok || p.Spec.NodeName != "") {
				out = append(out, it.object)
			}
		}
		slices.SortFunc(out[from:], func(a, b object) int { return keyOf(a).compare(keyOf(b)) })
	}
	return out
}

// sameForAgent reports whether the agent need not hear of the difference between two
// versions of an object: it is what the agent has said itself.
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
		equality.Semantic.DeepEqual(others(p.Status.Conditions), others(q.Status.Conditions)) &&
		podmeta.IsTerminal(p.Status.Phase) == podmeta.IsTerminal(q.Status.Phase)
}

// agents are the conditions that the agent writes; all others are somebody else's.
var agents = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers, v1.DisruptionTarget,
	v1.PodResizePending, v1.PodResizeInProgress, "AllContainersRestarting",
}

func others(list []v1.PodCondition) (out []v1.PodCondition) {
	for _, c := range list {
		if !slices.Contains(agents, c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// snapshotOf copies objects for the agent.
func snapshotOf(objects []object) (out podmgr.Snapshot) {
	for _, o := range objects {
		switch o := o.DeepCopyObject().(type) {
		case *v1.Pod:
			o.ManagedFields = nil
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

// Update takes the status of a pod from the agent (statusmgr.Sink). That of a pod that
// has come to its end is kept over a restart.
func (s *Server) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	select {
	case <-s.loaded:
	case <-ctx.Done():
		return ctx.Err()
	}
	if podmeta.IsTerminal(status.Phase) {
		if err := s.lock(ctx); err != nil {
			return err
		}
		defer s.unlock()
	}
	s.mu.Lock()
	it, ok := s.state.objects[s.pods][key{pod.Namespace, pod.Name}]
	if !ok || it.object.GetUID() != pod.UID {
		s.mu.Unlock()
		return statusmgr.ErrGone
	}
	old := it.object.(*v1.Pod)
	next := *old // what is below is shared with the old one, and not changed
	next.Status = merged(status, &old.Status)
	if equality.Semantic.DeepEqual(&next.Status, &old.Status) {
		s.mu.Unlock()
		return nil
	}
	if !podmeta.IsTerminal(status.Phase) || it.source != "" {
		defer s.mu.Unlock()
		it.object = &next
		s.state.put(s.pods, it)
		return nil
	}
	s.mu.Unlock()
	_, err := s.commit(s.pods, it, &next, "nodewright")
	return err
}

// Restore shows the statuses that pods had before a restart, until the agent says more.
// It does not wait: pods that are read later have theirs as soon as they are there.
func (s *Server) Restore(statuses map[types.UID]v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = map[types.UID]v1.PodStatus{}
	for uid, st := range statuses {
		s.restored[uid] = *st.DeepCopy()
	}
	for _, it := range s.state.objects[s.pods] {
		p := *it.object.(*v1.Pod)
		if st, ok := s.restored[p.UID]; ok && p.Status.StartTime == nil {
			p.Status = merged(st, &p.Status)
			it.object = &p
			s.state.put(s.pods, it)
		}
	}
}

// asRestored is the status that a pod had before a restart. s.mu is held.
func (s *Server) asRestored(o object) {
	if p, ok := o.(*v1.Pod); ok && p.Status.StartTime == nil {
		if st, ok := s.restored[p.UID]; ok {
			p.Status = merged(st, &p.Status)
		}
	}
}

// merged is a status from the agent, with the conditions of others.
func merged(status v1.PodStatus, old *v1.PodStatus) v1.PodStatus {
	out := *status.DeepCopy()
	if out.QOSClass == "" {
		out.QOSClass = old.QOSClass
	}
	if out.NominatedNodeName == "" {
		out.NominatedNodeName = old.NominatedNodeName
	}
	for _, c := range others(old.Conditions) {
		if !slices.ContainsFunc(out.Conditions, func(n v1.PodCondition) bool { return n.Type == c.Type }) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

// Delete removes a pod that is to end and of which nothing is left (statusmgr.Sink).
func (s *Server) Delete(ctx context.Context, pod *v1.Pod) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	it, ok := s.item(s.pods, key{pod.Namespace, pod.Name})
	if !ok || it.object.GetUID() != pod.UID || it.source != "" {
		return statusmgr.ErrGone
	}
	if len(it.object.GetFinalizers()) == 0 {
		_, err := s.remove(s.pods, it)
		s.emptied(pod.Namespace)
		return err
	}
	o := it.object.DeepCopyObject().(object)
	o.SetDeletionGracePeriodSeconds(new(int64))
	_, err := s.commit(s.pods, it, o, "nodewright")
	return err
}

// ends reports whether the agent still has to say that nothing is left of a pod.
func (s *Server) ends(k *kind, o object) bool {
	return k == s.pods && deref(o.GetDeletionGracePeriodSeconds()) > 0
}

// Show returns a source that does what another does, and shows here what it delivers:
// its objects can be read, and their statuses with them, and be changed only where they
// come from.
func (s *Server) Show(src podmgr.Source) podmgr.Source { return shown{src, s} }

type shown struct {
	podmgr.Source

	s *Server
}

// Kind is that of the source itself.
func (o shown) Kind() podmgr.Kind { return podmgr.KindOf(o.Source) }

func (o shown) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	return o.Source.Run(ctx, func(snap podmgr.Snapshot) {
		o.s.show(o.Source.Name(), &snap)
		deliver(snap)
	})
}

// show has what a source delivers take the place of what it delivered before.
func (s *Server) show(name string, snap *podmgr.Snapshot) {
	want := map[*kind]map[key]object{}
	add := func(k *kind, o object) {
		if want[k] == nil {
			want[k] = map[key]object{}
		}
		c := o.DeepCopyObject().(object)
		if p, ok := c.(*v1.Pod); ok {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[podmeta.AnnotationSource] = name
		}
		want[k][keyOf(c)] = c
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
			if it := s.state.objects[k][n]; want[k][n] == nil && it.source == name {
				s.state.drop(k, n)
			}
		}
	}
	s.shown[name] = map[*kind]map[key]bool{}
	for k, objects := range want {
		s.shown[name][k] = map[key]bool{}
		for n, o := range objects {
			s.shown[name][k][n] = true
			s.showOne(name, k, o)
		}
	}
}

func each[T any](list []*T, f func(*T)) {
	for _, o := range list {
		if o != nil {
			f(o)
		}
	}
}

// showOne shows an object, unless a client has made one of its name. s.mu is held.
func (s *Server) showOne(name string, k *kind, o object) {
	it, there := s.state.objects[k][keyOf(o)]
	if there && it.source != name {
		return
	}
	if o.GetUID() == "" {
		o.SetUID(newUID())
	}
	if there {
		if k.Kind != "Pod" || it.object.GetUID() == o.GetUID() {
			o.SetUID(it.object.GetUID())
			o.SetCreationTimestamp(it.object.GetCreationTimestamp())
			carryShown(o, it.object)
		}
		if unchanged(typedAs(k, o), it.object) {
			return
		}
	}
	if c := o.GetCreationTimestamp(); c.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	s.asRestored(o)
	if p, ok := o.(*v1.Pod); ok && p.Status.Phase == "" {
		p.Status.Phase = v1.PodPending
	}
	if _, ok := s.state.objects[s.namespaces][key{name: o.GetNamespace()}]; !ok && k.namespaced {
		s.state.put(s.namespaces, item{object: madeNamespace(o.GetNamespace())})
	}
	s.state.put(k, item{object: o, source: name})
}

func typedAs(k *kind, o object) object {
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return o
}

func carryShown(to, from object) {
	if p, ok := to.(*v1.Pod); ok {
		p.Status = from.(*v1.Pod).Status
	}
}
