package podsource

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/kubeapi/follow"
	"github.com/nodewright/nodewright/podmgr"
)

// object is what pods refer to.
type object struct {
	ref   Ref
	users int
	is    metav1.Object // nil, if it is not there or was not read; never changed
	known bool          // the server said so in this life
	stop  context.CancelFunc
}

// refer notes what a pod refers to from now on: what is new first, so that what
// stays is not given up between. s.mu is held.
func (s *Source) refer(e *entry, refs []Ref) {
	old := e.refs
	e.refs = refs
	for _, r := range refs {
		o := s.refs[r]
		if o == nil {
			o = &object{ref: r}
			s.refs[r] = o
		}
		o.users++
		if o.stop == nil && !o.settled() {
			s.follow(o)
		}
	}
	for _, r := range old {
		o := s.refs[r]
		if o.users--; o.users == 0 {
			delete(s.refs, r)
			if o.stop != nil {
				o.stop()
			}
		}
	}
}

// settled tells that an object is known and says that it never changes.
func (o *object) settled() bool {
	if !o.known || o.is == nil {
		return false
	}
	var never *bool
	switch is := o.is.(type) {
	case *v1.ConfigMap:
		never = is.Immutable
	case *v1.Secret:
		never = is.Immutable
	}
	return never != nil && *never
}

// waits tells whether a new pod waits for what it refers to. While there is
// nobody to read that from, none does. s.mu is held.
func (s *Source) waits(e *entry, now time.Time) bool {
	return s.synced && !e.delivered && now.Before(e.due) &&
		slices.ContainsFunc(e.refs, func(r Ref) bool { return !s.refs[r].known && s.refs[r].is == nil })
}

// follow begins to follow an object. s.mu is held.
func (s *Source) follow(o *object) {
	if s.run.ctx == nil || s.run.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.run.ctx)
	o.stop = cancel
	var err error
	switch o.ref.Kind {
	case kindConfigMap:
		err = begin[*v1.ConfigMap](ctx, s, o, apiclient.ConfigMaps, func() runtime.Object { return &v1.ConfigMapList{} })
	case kindSecret:
		err = begin[*v1.Secret](ctx, s, o, apiclient.Secrets, func() runtime.Object { return &v1.SecretList{} })
	}
	if err != nil {
		s.cfg.Log.Error("an object cannot be followed", zap.Any("object", o.ref), zap.Error(err))
	}
}

// begin follows one object.
func begin[T follow.Object](ctx context.Context, s *Source, o *object, r apiclient.Resource, newList func() runtime.Object) error {
	f, err := follow.New(follow.Config[T]{
		Client: s.cfg.Client, Resource: r, Namespace: o.ref.Namespace, Fields: "metadata.name=" + o.ref.Name, NewList: newList,
		Replace: func(all []T, _ string) {
			if len(all) == 0 {
				s.know(o, nil)
			} else {
				s.know(o, all[0])
			}
		},
		Put:    func(is T) { s.know(o, is) },
		Delete: func(T) { s.know(o, nil) },
		Failed: func(err error, again time.Duration) {
			s.cfg.Log.Debug("an object cannot be read", zap.Any("object", o.ref), zap.Error(err), zap.Duration("retry", again))
		},
		Gate: &s.gate,
	})
	if err == nil {
		s.run.wg.Go(func() { _ = f.Run(ctx) })
	}
	return err
}

// know notes what the server says of an object.
func (s *Source) know(o *object, is metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs[o.ref] != o {
		return
	}
	news := !o.known || (is == nil) != (o.is == nil) || is != nil && is.GetResourceVersion() != o.is.GetResourceVersion()
	o.known, o.is = true, is
	if o.settled() && o.stop != nil {
		o.stop()
		o.stop = nil
	}
	if !news {
		return
	}
	for _, e := range s.pods {
		s.changed = s.changed || e.delivered && slices.Contains(e.refs, o.ref)
	}
	s.wake()
}

// addObjects adds what is there. s.mu is held.
func (s *Source) addObjects(snap *podmgr.Snapshot) {
	for _, o := range s.refs {
		switch is := o.is.(type) {
		case *v1.ConfigMap:
			snap.ConfigMaps = append(snap.ConfigMaps, is)
		case *v1.Secret:
			snap.Secrets = append(snap.Secrets, is)
		}
	}
	slices.SortFunc(snap.ConfigMaps, func(a, b *v1.ConfigMap) int { return byName(a, b) })
	slices.SortFunc(snap.Secrets, func(a, b *v1.Secret) int { return byName(a, b) })
}

func byName(a, b metav1.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
