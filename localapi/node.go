package localapi

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/localapi/internal/objects"
	"github.com/nodewright/nodewright/localapi/store"
)

const (
	// lookEvery is the shortest time between two reads of the node's facts, however often clients
	// ask.
	lookEvery = time.Second
	// lookTime limits one read of the node's facts. If the read fails, the previous facts
	// stay in effect.
	lookTime = 5 * time.Second
)

// begins creates the node from its stored documents.
func (s *Server) begins(docs []store.Document) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Node, UID: types.UID(s.cfg.Node)}}
	n.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	ch := change{Kind: s.nodes, Key: keyOf(n), Actor: objects.Agent, Verb: objects.Create, Object: n}
	for i := range docs {
		d := &docs[i]
		if k, err := s.kindOfDocument(d); err != nil || k != s.nodes {
			continue
		}
		o, err := decodeDocument(s.nodes, d)
		if err != nil || o.GetName() != s.cfg.Node {
			s.cfg.Log.Warn("ignored invalid file", zap.String("file", d.Name), zap.Error(err))
			continue
		}
		kept := o.(*v1.Node)
		n.Labels, n.Annotations, n.Spec.Unschedulable, n.Status.Conditions = kept.Labels, kept.Annotations, kept.Spec.Unschedulable, kept.Status.Conditions
		if !kept.CreationTimestamp.IsZero() {
			n.CreationTimestamp = kept.CreationTimestamp
		}
		ch.Actor, ch.Read = objects.File, objects.FileState{Name: d.Name, At: d.Revision, Complete: true}
	}
	s.note(ch)
}

// takeNode applies a person's change of the node's file.
func (t *turn) takeNode(d *store.Document, o *v1.Node) error {
	s := t.s
	it, ok := s.item(s.nodes, key{Name: s.cfg.Node})
	if !ok || o.Name != s.cfg.Node {
		return notFound(s.nodes, o.Name)
	}
	n := it.Object.DeepCopyObject().(*v1.Node)
	n.Spec.Unschedulable = o.Spec.Unschedulable
	n.Labels, n.Annotations = over(s.described().Labels, o.Labels), over(s.described().Annotations, o.Annotations)
	n.Status.Conditions = s.withConditions(o.Status.Conditions)
	_, err := t.apply(change{Kind: s.nodes, Key: keyOf(n), Actor: objects.File, Verb: objects.Update, Object: n, Read: objects.FileState{Name: d.Name, At: d.Revision}})
	return err
}

// over returns a map with the entries of m and o; entries of o take precedence. It returns nil if
// there are none.
func over(m, o map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, m)
	maps.Copy(out, o)
	if len(out) == 0 {
		return nil
	}
	return out
}

// described returns the node as the agent last described it.
func (s *Server) described() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asDescribed == nil {
		return &v1.Node{}
	}
	return s.asDescribed
}

// ownWords returns what clients have set on the node; everything else comes from the agent.
func (s *Server) ownWords(n *v1.Node) *v1.Node {
	found := s.described()
	out := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, CreationTimestamp: n.CreationTimestamp}}
	out.Labels, out.Annotations = differing(n.Labels, found.Labels), differing(n.Annotations, found.Annotations)
	out.Spec.Unschedulable = n.Spec.Unschedulable
	out.Status.Conditions = otherConditions(n.Status.Conditions, found.Status.Conditions)
	return out
}

// otherConditions returns the conditions in list whose types are not in agents.
func otherConditions(list, agents []v1.NodeCondition) (out []v1.NodeCondition) {
	for _, c := range list {
		if !slices.ContainsFunc(agents, func(a v1.NodeCondition) bool { return a.Type == c.Type }) {
			out = append(out, c)
		}
	}
	return out
}

// withConditions returns the conditions of the agent, and those in list of other types.
func (s *Server) withConditions(list []v1.NodeCondition) []v1.NodeCondition {
	agents := s.described().Status.Conditions
	return append(slices.Clone(agents), otherConditions(list, agents)...)
}

// prepareNodeStatus restores the agent's conditions in the status of n, which a client sends. The
// client may set conditions of other types, as node-problem-detector does, and no other field.
func (s *Server) prepareNodeStatus(k *kind, n, old *v1.Node) error {
	want := old.Status.DeepCopy()
	want.Conditions = n.Status.Conditions
	if !equality.Semantic.DeepEqual(&n.Status, want) {
		return invalid(k, n.Name, field.ErrorList{field.Forbidden(field.NewPath("status"), "only conditions may be changed; the agent sets the rest")})
	}
	n.Status.Conditions = s.withConditions(n.Status.Conditions)
	return nil
}

func differing(m, from map[string]string) map[string]string {
	var out map[string]string
	for k, v := range m {
		if was, ok := from[k]; !ok || was != v {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// fresh reads the node's facts again, if k is the kind Node and the last read is older than
// lookEvery.
func (s *Server) fresh(ctx context.Context, k *kind) error {
	if k != s.nodes || s.cfg.Describe == nil {
		return nil
	}
	select {
	case s.looking <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-s.looking }()
	s.mu.Lock()
	first, recent := s.asDescribed == nil, time.Since(s.looked) < lookEvery
	s.mu.Unlock()
	if recent {
		return nil
	}
	found := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Node}}
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := s.cfg.Describe(bounded, found); err != nil {
		s.cfg.Log.Debug("failed to read the facts about the node", zap.Error(err))
		return nil
	}
	t := s.set.TryTurn()
	if t == nil && first { // objects are still being loaded
		var err error
		if t, err = s.set.Turn(bounded); err != nil {
			return err
		}
	}
	if t == nil { // a writer is active; the next read stores the rest
		return nil
	}
	defer t.End()
	it, ok := s.item(s.nodes, key{Name: s.cfg.Node})
	if !ok {
		return nil
	}
	old := it.Object.(*v1.Node)
	own := s.ownWords(old)
	s.mu.Lock()
	s.asDescribed, s.looked = found.DeepCopy(), time.Now()
	s.mu.Unlock()
	n := old.DeepCopy()
	n.Labels, n.Annotations = over(found.Labels, own.Labels), over(found.Annotations, own.Annotations)
	n.Spec, n.Status = found.Spec, found.Status
	n.Status.Conditions = s.withConditions(own.Status.Conditions)
	n.Spec.Unschedulable = own.Spec.Unschedulable
	if !sameNode(n, old) {
		_, err := t.Apply(change{Kind: s.nodes, Key: keyOf(n), Actor: objects.Agent, Verb: objects.Update, Object: n})
		return err
	}
	return nil
}

// sameNode reports whether two nodes are equal, except for the time at which they were described.
func sameNode(a, b *v1.Node) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	for _, n := range []*v1.Node{x, y} {
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}

// NodeLabels returns the labels of the node, including changes of clients; nil before the node's
// facts were read.
func (s *Server) NodeLabels() map[string]string {
	it, ok := s.item(s.nodes, key{Name: s.cfg.Node})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.asDescribed == nil {
		return nil
	}
	return maps.Clone(it.Object.GetLabels())
}
