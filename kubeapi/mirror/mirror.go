package mirror

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

	"github.com/nodewright/nodewright/kubeapi/apiclient"
	"github.com/nodewright/nodewright/podmeta"
)

// Client makes the calls: an [apiclient.Client].
type Client interface {
	Get(ctx context.Context, r apiclient.Resource, k apiclient.Key, into runtime.Object, opts ...metav1.GetOptions) error
	Create(ctx context.Context, r apiclient.Resource, k apiclient.Key, obj, into runtime.Object, subresources ...string) error
	Delete(ctx context.Context, r apiclient.Resource, k apiclient.Key, opts metav1.DeleteOptions) error
}

// Config holds what a Manager needs. All of it is required.
type Config struct {
	Client   Client
	NodeName string
	// Node returns the UID of the Node object; false while that is not known,
	// or being deleted: then no mirror is made.
	Node func() (uid types.UID, ok bool)
}

// Manager makes and deletes mirror pods. Its methods may be called from any
// goroutine.
type Manager struct {
	cfg Config

	mu   sync.Mutex
	busy map[apiclient.Key]chan struct{} // closed when the call is over
}

// New checks cfg and returns a Manager.
func New(cfg Config) (*Manager, error) {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("Config.Client is required"))
	}
	if cfg.NodeName == "" {
		errs = append(errs, errors.New("Config.NodeName is required"))
	}
	if cfg.Node == nil {
		errs = append(errs, errors.New("Config.Node is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	return &Manager{cfg: cfg, busy: map[apiclient.Key]chan struct{}{}}, nil
}

// Of reports whether mirror stands for this version of a static pod.
func Of(mirror, static *v1.Pod) bool {
	hash, ok := static.Annotations[podmeta.AnnotationHash]
	return ok && mirror.Namespace == static.Namespace && mirror.Name == static.Name &&
		mirror.Annotations[podmeta.AnnotationMirror] == hash
}

// Ensure makes the mirror of a static pod, unless mirror is it. mirror is what
// the API has under that name, or nil. One that is outdated, or being deleted,
// is deleted before.
func (m *Manager) Ensure(ctx context.Context, static, mirror *v1.Pod) error {
	if mirror != nil && mirror.DeletionTimestamp == nil && Of(mirror, static) {
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
	if !ok {
		return nil
	}
	hash := static.Annotations[podmeta.AnnotationHash]
	if hash == "" {
		return fmt.Errorf("mirror of %s: the static pod has no annotation %s", keyOf(static), podmeta.AnnotationHash)
	}
	if uid == "" {
		return fmt.Errorf("mirror of %s: the Node %s has no UID", keyOf(static), m.cfg.NodeName)
	}
	err = m.cfg.Client.Create(ctx, apiclient.Pods, keyOf(static), m.image(static, hash, uid), nil)
	if apierrors.IsAlreadyExists(err) {
		var there v1.Pod
		if err := m.cfg.Client.Get(ctx, apiclient.Pods, keyOf(static), &there); err != nil {
			return fmt.Errorf("mirror of %s: %w", keyOf(static), err)
		}
		if Of(&there, static) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("mirror of %s: %w", keyOf(static), err)
	}
	return nil
}

// image is a static pod as the API is to show it.
func (m *Manager) image(static *v1.Pod, hash string, node types.UID) *v1.Pod {
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

// Remove deletes a mirror at once, and no other pod of its name. One that is
// not there is no error.
func (m *Manager) Remove(ctx context.Context, mirror *v1.Pod) error {
	done, err := m.begin(ctx, keyOf(mirror))
	if err != nil {
		return err
	}
	defer done()
	return m.remove(ctx, mirror)
}

func (m *Manager) remove(ctx context.Context, mirror *v1.Pod) error {
	if !podmeta.IsMirror(mirror) {
		return fmt.Errorf("%s is no mirror pod: it is not deleted", keyOf(mirror))
	}
	var now int64
	opts := metav1.DeleteOptions{GracePeriodSeconds: &now}
	if mirror.UID != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &mirror.UID}
	}
	err := m.cfg.Client.Delete(ctx, apiclient.Pods, keyOf(mirror), opts)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete mirror %s: %w", keyOf(mirror), err)
}

// RemoveOrphans deletes the mirrors that stand for no static pod: those of
// whose name wanted says no.
func (m *Manager) RemoveOrphans(ctx context.Context, mirrors []*v1.Pod, wanted func(namespace, name string) bool) error {
	var errs []error
	for _, p := range mirrors {
		if !wanted(p.Namespace, p.Name) {
			errs = append(errs, m.Remove(ctx, p))
		}
	}
	return errors.Join(errs...)
}

// begin waits for other calls for a pod of that name.
func (m *Manager) begin(ctx context.Context, k apiclient.Key) (done func(), err error) {
	for {
		m.mu.Lock()
		other := m.busy[k]
		if other == nil {
			mine := make(chan struct{})
			m.busy[k] = mine
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.busy, k)
				m.mu.Unlock()
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("mirror of %s: %w", k, ctx.Err())
		}
	}
}

func keyOf(p *v1.Pod) apiclient.Key { return apiclient.Key{Namespace: p.Namespace, Name: p.Name} }
