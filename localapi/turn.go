package localapi

import (
	"context"
	"fmt"
	"strconv"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

type (
	// object is any served object.
	object = objects.Object
	key    = objects.Key
	item   = objects.Entry
	change = objects.Change
)

func keyOf(o object) key { return objects.KeyOf(o) }

// Type describes the kind for package objects.
func (k *kind) Type() objects.Type {
	return objects.Type{GroupVersionKind: k.GroupVersionKind, Resource: k.resource, Memory: k.memory}
}

// turn is the write lock on stored objects; its holder may change them.
type turn struct {
	*objects.Turn

	s *Server
	// todo has the outcomes of changes whose consequences have not been handled yet.
	todo []outcome
	held bool // drain is running, or the holder of the turn will call it
	// going are the objects whose dependents are being deleted before them.
	going map[types.UID]bool
}

// outcome is the result of a change, with the object's kind.
type outcome struct {
	k objects.Kind
	objects.Result
}

// turn waits for the write lock, and gets it before all waiting clients. End releases
// the lock.
func (s *Server) turn(ctx context.Context) (*turn, error) {
	t, err := s.set.Turn(ctx)
	return &turn{Turn: t, s: s, going: map[types.UID]bool{}}, err
}

// clientTurn is turn for a client, which waits behind the other clients.
func (s *Server) clientTurn(ctx context.Context) (*turn, error) {
	t, err := s.set.ClientTurn(ctx)
	return &turn{Turn: t, s: s, going: map[types.UID]bool{}}, err
}

// apply makes a change and handles its consequences.
func (t *turn) apply(ch change) (objects.Result, error) {
	ch = t.s.protected(ch)
	if err := t.ahead(ch); err != nil {
		return objects.Result{}, err
	}
	r, err := t.Apply(ch)
	// While files are loaded, the file of an object's owner may not be loaded yet.
	if live := r.Phase == objects.Live && ch.Actor == objects.File && ch.Kind != t.s.nodes; err == nil && !ch.DryRun && !live {
		t.follow(ch.Kind, r)
		if _, there := t.s.set.Get(ch.Kind, ch.Key); !there {
			r.Phase = objects.Absent
		}
	}
	return r, err
}

// follow handles the consequences of a change. It considers only the current objects, not the kind
// of change, so if a consequence fails, the next change triggers it again.
func (t *turn) follow(k objects.Kind, r objects.Result) {
	t.todo = append(t.todo, outcome{k, r})
	if !t.held {
		t.drain()
	}
}

// drain handles the pending changes one after the other, without recursion, since chains may be
// long.
func (t *turn) drain() {
	t.held = true
	defer func() { t.held = false }()
	for len(t.todo) > 0 {
		next := t.todo[0]
		t.todo = t.todo[1:]
		t.followed(next)
	}
}

func (t *turn) followed(c outcome) {
	s := t.s
	switch {
	case c.k == s.nodes, c.Phase == objects.Absent && protection(c.Object) != "":
		t.bind()
	case c.k == s.events:
		s.mu.Lock()
		s.bound()
		s.mu.Unlock()
	case c.k == s.namespaces && c.Phase == objects.Ending:
		t.empty(c.Object.GetName())
	}
	t.relatives(c)
	if releases(c) {
		t.release()
	}
	if c.Phase == objects.Absent {
		t.emptied(c.Object.GetNamespace())
	}
}

// empty deletes all objects in a namespace.
func (t *turn) empty(namespace string) {
	for _, k := range t.s.kinds {
		if !k.namespaced || k.memory {
			continue
		}
		for _, it := range t.s.set.List(k, namespace) {
			t.attempt(change{Kind: k, Key: keyOf(it.Object), Verb: objects.Delete})
		}
	}
	t.emptied(namespace)
}

// emptied removes a namespace that is being deleted and has no objects except events. It removes
// the events too.
func (t *turn) emptied(namespace string) {
	it, ok := t.s.item(t.s.namespaces, key{Name: namespace})
	if ok && it.Phase() == objects.Ending && t.s.set.Owned(namespace) == 0 {
		t.attempt(change{Kind: t.s.namespaces, Key: keyOf(it.Object), Verb: objects.Gone})
	}
}

// attempt makes a change that is a consequence of another one. An error, for example of the disk,
// is logged.
func (t *turn) attempt(ch change) {
	t.logged(objects.Ref{Kind: ch.Kind, Key: ch.Key}, t.consequence(ch))
}

func (t *turn) logged(at objects.Ref, err error) {
	if err != nil {
		t.s.cfg.Log.Warn("failed to apply a change that follows from another one", zap.String("kind", at.Kind.Type().Kind), zap.String("namespace", at.Key.Namespace),
			zap.String("name", at.Key.Name), zap.Error(err))
	}
}

// consequence makes a change that is a consequence of another one.
func (t *turn) consequence(ch change) error {
	ch.Actor, ch.By = objects.Clock, itself
	_, err := t.apply(ch)
	return err
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
