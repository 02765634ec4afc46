package podsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/podmeta"
)

// MirrorClient makes the calls of Mirrors; [kubeapi.Client] implements it.
type MirrorClient interface {
	Get(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, into runtime.Object, opts ...metav1.GetOptions) error
	Create(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, obj, into runtime.Object, subresources ...string) error
	Delete(ctx context.Context, r kubeapi.Resource, k kubeapi.Key, opts metav1.DeleteOptions) error
}

// MirrorsConfig configures [Mirrors]. All fields are required.
type MirrorsConfig struct {
	Client   MirrorClient
	NodeName string
	// Node returns the UID of the Node object. It returns false if the Node is not
	// known or is being deleted; then no mirror is created.
	Node func() (uid types.UID, ok bool)
}

// Mirrors creates a mirror pod in the API for each static pod, for people and
// schedulers. Mirror pods are not run.
//
//	m, err := podsync.NewMirrors(podsync.MirrorsConfig{Client: client, NodeName: "edge-1", Node: registration.Node})
//	...
//	err = m.Ensure(ctx, static, current) // current is what podmgr.Manager.Mirror returns, or nil
//
// A mirror has the annotation kubernetes.io/config.mirror with the hash of its static
// pod. Its owner is the Node object, so that it is deleted with the Node. If a mirror
// is being deleted, or belongs to an earlier version of the static pod, it is replaced
// by a new one.
//
// # Faults
//
// Deletions name the UID, so that they never delete a newer pod. After an error the
// caller may only log it: the next call tries again. Calls for pods of one name are
// serialized.
//
// Its methods may be called from any goroutine.
type Mirrors struct {
	cfg MirrorsConfig

	mu sync.Mutex
	// busy has a channel for each pod with a running call.
	busy map[kubeapi.Key]chan struct{} // closed when the call has ended
}

// NewMirrors checks cfg and returns Mirrors.
func NewMirrors(cfg MirrorsConfig) (*Mirrors, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("MirrorsConfig.Client is required"))
	}
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("MirrorsConfig.NodeName is required"))
	}
	if cfg.Node == nil {
		errs = append(errs, errors.New("MirrorsConfig.Node is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("podsync: %w", err)
	}
	return &Mirrors{cfg: cfg, busy: map[kubeapi.Key]chan struct{}{}}, nil
}

// isMirrorOf reports whether mirror belongs to this version and this life (podlife.Life)
// of a static pod. A static pod without a hash has no mirror.
func isMirrorOf(mirror, static *v1.Pod) bool {
	hash, ok := static.Annotations[podmeta.AnnotationHash]
	return ok && mirror.Namespace == static.Namespace && mirror.Name == static.Name &&
		mirror.Annotations[podmeta.AnnotationMirror] == hash &&
		podmeta.LifeIn(mirror.Annotations, podmeta.AnnotationLife) >= podmeta.LifeIn(static.Annotations, podmeta.AnnotationLife)
}

// Ensure creates the mirror of a static pod, unless mirror is up to date. mirror is the
// API's pod of that name, or nil. If mirror is outdated or being deleted, Ensure
// deletes it first. Ensure waits for the server, and for other calls for a pod of that
// name.
func (m *Mirrors) Ensure(ctx context.Context, static, mirror *v1.Pod) error {
	// The common case comes first: it calls nothing and does not wait for other calls.
	if mirror != nil && mirror.DeletionTimestamp == nil && isMirrorOf(mirror, static) {
		return nil
	}
	done, err := m.begin(ctx, keyOf(static))
	if err != nil {
		return err
	}
	defer done()
	if mirror != nil {
		if err := m.remove(ctx, mirror); err != nil {
			return err
		}
	}
	uid, ok := m.cfg.Node()
	// Without an owner the mirror would remain when the Node object is deleted.
	if !ok {
		return nil
	}
	hash := static.Annotations[podmeta.AnnotationHash]
	if hash == "" {
		return fmt.Errorf("create mirror pod of %s: the static pod has no annotation %s", keyOf(static), podmeta.AnnotationHash)
	}
	// The API refuses an owner without a UID.
	if uid == "" {
		return fmt.Errorf("create mirror pod of %s: the Node %s has no UID", keyOf(static), m.cfg.NodeName)
	}
	err = m.cfg.Client.Create(ctx, kubeapi.Pods, keyOf(static), m.image(static, hash, uid), nil)
	if apierrors.IsAlreadyExists(err) {
		// The caller's version was outdated, or an earlier Create succeeded after its deadline: the
		// existing mirror may be up to date.
		var there v1.Pod
		if err := m.cfg.Client.Get(ctx, kubeapi.Pods, keyOf(static), &there); err != nil {
			return fmt.Errorf("get mirror pod of %s: %w", keyOf(static), err)
		}
		if isMirrorOf(&there, static) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("create mirror pod of %s: %w", keyOf(static), err)
	}
	return nil
}

// image returns the mirror pod of a static pod.
func (m *Mirrors) image(static *v1.Pod, hash string, node types.UID) *v1.Pod {
	// A static pod is shared with its source and its worker.
	p := static.DeepCopy()
	p.Annotations = maps.Clone(p.Annotations)
	p.Annotations[podmeta.AnnotationMirror] = hash
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.cfg.NodeName, UID: node, Controller: &yes}}
	p.UID, p.ResourceVersion, p.Generation, p.CreationTimestamp = "", "", 0, metav1.Time{} // the API's to give
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.ManagedFields = nil, nil, nil
	p.Status = v1.PodStatus{}
	return p
}

// Remove deletes a mirror at once, but no other pod of its name. It is not an error if the mirror
// does not exist.
func (m *Mirrors) Remove(ctx context.Context, mirror *v1.Pod) error {
	done, err := m.begin(ctx, keyOf(mirror))
	if err != nil {
		return err
	}
	defer done()
	return m.remove(ctx, mirror)
}

// remove deletes a mirror. The caller has called begin for its name.
func (m *Mirrors) remove(ctx context.Context, mirror *v1.Pod) error {
	// Deleting an ordinary pod would end it, so a wrong call is refused here.
	if !podmeta.IsMirror(mirror) {
		return fmt.Errorf("refused to delete %s, which is not a mirror pod", keyOf(mirror))
	}
	// No grace period: nothing runs for a mirror.
	var now int64
	opts := metav1.DeleteOptions{GracePeriodSeconds: &now}
	if mirror.UID != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &mirror.UID}
	}
	err := m.cfg.Client.Delete(ctx, kubeapi.Pods, keyOf(mirror), opts)
	// The precondition failed: the mirror is gone, and another pod has its name.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete mirror %s: %w", keyOf(mirror), err)
}

// begin waits for other calls for a pod of that name. done must be called at the end.
func (m *Mirrors) begin(ctx context.Context, k kubeapi.Key) (done func(), err error) {
	for {
		m.mu.Lock()
		other := m.busy[k]
		if other == nil {
			mine := make(chan struct{})
			m.busy[k] = mine
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				// Removed from the map before the channel is closed: a waiting caller must not find
				// it there.
				delete(m.busy, k)
				m.mu.Unlock()
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another call for the mirror pod of %s: %w", k, ctx.Err())
		}
	}
}

// keyOf returns the key of an object. A namespace has at most one object of a kind and name.
func keyOf(o metav1.Object) kubeapi.Key {
	return kubeapi.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}
