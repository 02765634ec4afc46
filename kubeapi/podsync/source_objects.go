package podsync

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmgr"
)

// object is an object that pods refer to. Source.mu guards it.
type object struct {
	ref Ref
	// users counts the pods and objects that refer to the object. It is dropped when
	// there are none.
	users int
	is    metav1.Object // nil if it does not exist or was not read; never changed
	known bool          // the server has answered since the start
	// stop ends the watch or the polling. It is nil if neither runs.
	stop  context.CancelFunc
	next  []Ref       // objects to which it refers: a claim's volume
	again wake.Signal // triggers a read, if it is polled
}

// refer replaces the references of a pod or an object, *have, by refs. It adds the new references
// first, so that an object that stays referenced is not dropped in between. The caller holds
// s.mu.
func (s *Source) refer(have *[]Ref, refs []Ref) {
	old := *have
	*have = refs
	for _, r := range refs {
		o := s.refs[r]
		if o == nil {
			o = &object{ref: r, again: wake.New()}
			s.refs[r] = o
		}
		if r.Kind == kindResource && o.users > 0 && !slices.Contains(old, r) {
			o.again.Set() // its status may have changed: it is reserved for one more pod
		}
		o.users++
		if o.stop == nil && !o.settled() {
			s.follow(o)
		}
		if o.is != nil && o.next == nil {
			s.refer(&o.next, nextOf(o.is)) // it was read from Memory
		}
	}
	for _, r := range old {
		o := s.refs[r]
		// The follower's last calls may still arrive: know ignores them.
		if o.users--; o.users == 0 {
			delete(s.refs, r)
			if o.stop != nil {
				o.stop()
			}
			s.refer(&o.next, nil)
		}
	}
}

// nextOf returns the objects that an object of a pod refers to, and that the pod needs too.
func nextOf(o metav1.Object) []Ref {
	switch o := o.(type) {
	case *v1.PersistentVolumeClaim:
		if o.Spec.VolumeName != "" {
			return []Ref{{Kind: kindVolume, Name: o.Spec.VolumeName}}
		}
	case *v1.PersistentVolume:
		return secretsOf(o)
	}
	return nil
}

// secretsOf returns the Secrets that a node needs for a CSI volume, each once. This
// includes volumes of the in-tree plugin for Azure files, which a CSI driver replaces.
func secretsOf(pv *v1.PersistentVolume) []Ref {
	var refs []*v1.SecretReference
	if c := pv.Spec.CSI; c != nil {
		refs = []*v1.SecretReference{c.NodeStageSecretRef, c.NodePublishSecretRef, c.NodeExpandSecretRef}
	}
	// A Secret without a namespace is in the claim's namespace.
	if f := pv.Spec.AzureFile; f != nil {
		r := &v1.SecretReference{Namespace: v1.NamespaceDefault, Name: f.SecretName}
		if f.SecretNamespace != nil && *f.SecretNamespace != "" {
			r.Namespace = *f.SecretNamespace
		} else if c := pv.Spec.ClaimRef; c != nil && c.Namespace != "" {
			r.Namespace = c.Namespace
		}
		refs = append(refs, r)
	}
	var out []Ref
	for _, r := range refs {
		if r == nil || r.Name == "" || r.Namespace == "" {
			continue
		}
		if ref := (Ref{Kind: kindSecret, Namespace: r.Namespace, Name: r.Name}); !slices.Contains(out, ref) {
			out = append(out, ref)
		}
	}
	return out
}

// leadsTo reports whether the two references are equal, or the object of the first refers to the
// object of the second, possibly through other objects. The caller holds s.mu.
func (s *Source) leadsTo(from, to Ref) bool {
	o := s.refs[from]
	return from == to || o != nil && slices.ContainsFunc(o.next, func(r Ref) bool { return s.leadsTo(r, to) })
}

// settled reports whether an object is known and immutable, so that it need not be
// followed any more.
func (o *object) settled() bool {
	if !o.known || o.is == nil {
		return false
	}
	var never *bool
	// An immutable object (KEP-1412) needs no watch.
	switch is := o.is.(type) {
	case *v1.ConfigMap:
		never = is.Immutable
	case *v1.Secret:
		never = is.Immutable
	}
	return never != nil && *never
}

// waits reports whether a new pod still waits for its objects at the time now. The caller holds
// s.mu.
func (s *Source) waits(e *entry, now time.Time) bool {
	return s.synced && !e.delivered && now.Before(e.due) && slices.ContainsFunc(e.refs, func(r Ref) bool {
		return s.unknown(r) || r.Kind == kindResource && !usable(s.refs[r].is, e.pod)
	})
}

// unknown reports whether an object, or one that it refers to, was never read. The
// caller holds s.mu.
func (s *Source) unknown(r Ref) bool {
	o := s.refs[r]
	return !o.known && o.is == nil || slices.ContainsFunc(o.next, s.unknown)
}

// follow begins to follow an object. The caller holds s.mu. After the end of Run it does
// nothing.
func (s *Source) follow(o *object) {
	if s.run.ctx == nil || s.run.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.run.ctx)
	o.stop = cancel
	var err error
	// The node authorizer allows a node to watch single ConfigMaps and Secrets, but only to get the
	// other kinds.
	switch o.ref.Kind {
	case kindConfigMap:
		err = begin[*v1.ConfigMap](ctx, s, o, kubeapi.ConfigMaps, func() runtime.Object { return &v1.ConfigMapList{} })
	case kindSecret:
		err = begin[*v1.Secret](ctx, s, o, kubeapi.Secrets, func() runtime.Object { return &v1.SecretList{} })
	case kindClaim:
		s.run.wg.Go(func() {
			s.poll(ctx, o, kubeapi.PersistentVolumeClaims, func() polled { return &v1.PersistentVolumeClaim{} })
		})
	case kindResource:
		s.run.wg.Go(func() { s.poll(ctx, o, kubeapi.ResourceClaims, func() polled { return &resourcev1.ResourceClaim{} }) })
	case kindVolume:
		s.run.wg.Go(func() { s.poll(ctx, o, kubeapi.PersistentVolumes, func() polled { return &v1.PersistentVolume{} }) })
	}
	if err != nil {
		s.cfg.Log.Error("failed to follow object", zap.Reflect("object", o.ref), zap.Error(err))
	}
}

// begin follows one object with a watch until ctx ends.
func begin[T kubeapi.FollowedObject](ctx context.Context, s *Source, o *object, r kubeapi.Resource, newList func() runtime.Object) error {
	f, err := kubeapi.NewFollower(kubeapi.FollowConfig[T]{
		Client: s.cfg.Client, Resource: r, Namespace: o.ref.Namespace, Fields: "metadata.name=" + o.ref.Name, NewList: newList,
		Replace: func(all []T, _ string) {
			// The object does not exist.
			if len(all) == 0 {
				s.know(o, nil)
			} else {
				s.know(o, all[0])
			}
		},
		Put:    func(is T) { s.know(o, is) },
		Delete: func(T) { s.know(o, nil) },
		// The follower of the pods reports failures of the server; a log line for each object would
		// only repeat them.
		Failed: func(err error, again time.Duration) {
			s.cfg.Log.Debug("failed to read object", zap.Reflect("object", o.ref), zap.Error(err), zap.Duration("retry", again))
		},
		Gate: &s.gate,
	})
	if err == nil {
		s.run.wg.Go(func() { _ = f.Run(ctx) })
	}
	return err
}

// know records the server's version of an object. latest is nil if the object does not exist.
func (s *Source) know(o *object, latest metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The object was dropped meanwhile, and may have been added again.
	if s.refs[o.ref] != o {
		return
	}
	news := !o.known || (latest == nil) != (o.is == nil) || latest != nil && latest.GetResourceVersion() != o.is.GetResourceVersion()
	o.known, o.is = true, latest
	// A claim that was just bound refers to its volume.
	s.refer(&o.next, nextOf(latest))
	if o.settled() && o.stop != nil {
		o.stop()
		o.stop = nil
	}
	// The version is known already, for example after a restarted watch.
	if !news {
		return
	}
	for _, e := range s.pods {
		s.changed = s.changed || e.delivered && slices.ContainsFunc(e.refs, func(r Ref) bool {
			return s.leadsTo(r, o.ref)
		})
	}
	s.signal.Set()
}

// addObjects adds the existing objects to a snapshot. The caller holds s.mu. The lists are
// sorted, so that equal states give equal snapshots.
func (s *Source) addObjects(snap *podmgr.Snapshot) {
	for _, o := range s.refs {
		switch is := o.is.(type) {
		case *v1.ConfigMap:
			snap.ConfigMaps = append(snap.ConfigMaps, is)
		case *v1.Secret:
			snap.Secrets = append(snap.Secrets, is)
		case *v1.PersistentVolumeClaim:
			snap.Claims = append(snap.Claims, is)
		case *v1.PersistentVolume:
			snap.Volumes = append(snap.Volumes, is)
		case *resourcev1.ResourceClaim:
			snap.ResourceClaims = append(snap.ResourceClaims, is)
		}
	}
	slices.SortFunc(snap.ConfigMaps, func(a, b *v1.ConfigMap) int { return byName(a, b) })
	slices.SortFunc(snap.Secrets, func(a, b *v1.Secret) int { return byName(a, b) })
	slices.SortFunc(snap.Claims, func(a, b *v1.PersistentVolumeClaim) int { return byName(a, b) })
	slices.SortFunc(snap.Volumes, func(a, b *v1.PersistentVolume) int { return byName(a, b) })
	slices.SortFunc(snap.ResourceClaims, func(a, b *resourcev1.ResourceClaim) int { return byName(a, b) })
}

// byName orders objects by namespace and name.
func byName(a, b metav1.Object) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
