package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// MirrorAPI creates and deletes mirror pods in a cluster. Calls for different pods are concurrent.
type MirrorAPI interface {
	// Ensure makes sure that a static pod has a mirror. mirror is the existing mirror, or nil. If
	// the mirror belongs to this version of the pod, Ensure keeps it; otherwise Ensure replaces
	// it.
	Ensure(ctx context.Context, pod, mirror *v1.Pod) error
	// Remove deletes a mirror whose pod is gone.
	Remove(ctx context.Context, mirror *v1.Pod) error
}

// MirrorsConfig configures [Mirrors].
type MirrorsConfig struct {
	// API is the API server. Required.
	API MirrorAPI
	// Log gets failed calls. If it is nil, nothing is logged.
	Log *zap.Logger
}

// Mirrors is the part that maintains a mirror pod for each static pod of the node: an
// object of the API that shows the pod and its status.
//
//	p, err := lifecycle.NewMirrors(lifecycle.MirrorsConfig{API: client})
//
// A missing mirror is created when its pod is synced, when the mirror disappears, and by
// housekeeping, which also creates the mirrors of pods that have ended or were rejected.
// Housekeeping removes a mirror whose pod is gone and has ended. The statuses of static pods are
// published under their mirrors.
//
// Its methods may be called from any goroutine, and only Run blocks.
//
// # Hooks
//
// part.Starter, part.Housekeeper and part.MirrorWatcher notice missing and outdated
// mirrors. part.Publisher says which object shows a status. The Host has to implement
// part.Mirrors too.
//
// # Ownership
//
// Goroutines make the calls of the API, at most one for each pod name. They end with
// [Mirrors.Run], which waits for them. They read the current pod and mirror again
// before each call, so that no outdated mirror is created.
//
// # Faults
//
// If the API server does not answer, no pod waits, and neither do the mirrors of other
// pods. A call ends after 30 s. It is repeated after 1 s, doubled each time up to 1
// min, as long as it is needed.
type Mirrors struct {
	cfg  MirrorsConfig
	host host // set by Join

	calls *calls

	// orphaned has the UIDs of mirrors whose pods were gone and had ended. If a pod comes
	// back under the same name, it does not continue the status of such a mirror, even if
	// the cluster has not deleted the mirror yet.
	mu       sync.Mutex
	orphaned map[types.UID]bool
}

// host has the methods of the agent that Mirrors calls.
type host interface {
	part.Host
	part.Mirrors
}

var (
	_ part.Joiner        = (*Mirrors)(nil)
	_ part.Runner        = (*Mirrors)(nil)
	_ part.Starter       = (*Mirrors)(nil)
	_ part.Housekeeper   = (*Mirrors)(nil)
	_ part.Publisher     = (*Mirrors)(nil)
	_ part.MirrorWatcher = (*Mirrors)(nil)
)

// NewMirrors checks cfg and returns a part.
func NewMirrors(cfg MirrorsConfig) (*Mirrors, error) {
	if cfg.API == nil {
		return nil, errors.New("mirrors: MirrorsConfig.API is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Mirrors{cfg: cfg, calls: newCalls(cfg.Log), orphaned: map[types.UID]bool{}}, nil
}

// Name implements part.Part.
func (*Mirrors) Name() string { return "mirrors" }

// Join implements part.Joiner. The host has to be a part.Mirrors.
func (p *Mirrors) Join(h part.Host) error {
	joined, ok := h.(host)
	if !ok {
		return fmt.Errorf("the agent (%T) does not implement part.Mirrors", h)
	}
	return part.SetHost(&p.host, joined)
}

// Run implements part.Runner: when ctx ends, it cancels running calls of the API, and returns when
// they have returned.
func (p *Mirrors) Run(ctx context.Context) error {
	<-ctx.Done()
	p.calls.close()
	return nil
}

// Syncing implements part.Starter.
func (p *Mirrors) Syncing(pod *v1.Pod) { p.ensure(pod) }

// ensure creates the mirror of a static pod, if it is missing, without waiting for it.
func (p *Mirrors) ensure(pod *v1.Pod) {
	if !podmeta.IsStatic(pod) {
		return
	}
	uid := pod.UID
	p.calls.until(podmeta.FullName(pod.Namespace, pod.Name), func(ctx context.Context) (bool, error) {
		pod, ok := p.host.Pod(uid)
		if !ok {
			return false, nil
		}
		there, _ := p.host.Mirror(pod.Namespace, pod.Name)
		if there != nil && p.outlived(pod, there) {
			if err := p.cfg.API.Remove(ctx, there); err != nil {
				return true, err
			}
			there = nil
		}
		numbered := *pod
		numbered.Annotations = podmeta.WithLife(pod.Annotations, podmeta.AnnotationLife, p.host.Life(pod).N)
		return true, p.cfg.API.Ensure(ctx, &numbered, there)
	})
}

// Housekeep implements part.Housekeeper. It removes the mirrors of static pods that are gone and
// have ended. It creates missing mirrors of pods that came before the Node was registered, were
// rejected, or ended while the cluster did not answer: these pods may never be synced again. It
// does nothing before every source has delivered, since a pod may still be wanted.
func (p *Mirrors) Housekeep(desired []*v1.Pod) {
	if !p.host.AllReady() {
		return
	}
	for _, pod := range desired {
		// The mirror of an earlier version is kept until that version has ended.
		if !podmeta.IsStatic(pod) || p.host.Terminating(podmeta.FullName(pod.Namespace, pod.Name)) {
			continue
		}
		if _, shown := p.PublishAs(pod); !shown {
			p.ensure(pod)
		}
	}
	there := map[types.UID]bool{}
	for _, m := range p.host.Mirrors() {
		there[m.UID] = true
		if _, ok := p.host.PodByName(m.Namespace, m.Name); !ok {
			p.remove(m)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.orphaned, func(uid types.UID, _ bool) bool { return !there[uid] })
}

// remove deletes an orphaned mirror once its pod has ended.
func (p *Mirrors) remove(m *v1.Pod) {
	namespace, name := m.Namespace, m.Name
	fullName := podmeta.FullName(namespace, name)
	if p.host.Terminating(fullName) {
		return
	}
	p.mu.Lock()
	p.orphaned[m.UID] = true
	p.mu.Unlock()
	p.calls.until(fullName, func(ctx context.Context) (bool, error) {
		mirror, ok := p.host.Mirror(namespace, name)
		if _, back := p.host.PodByName(namespace, name); back || !ok {
			return false, nil
		}
		return true, p.cfg.API.Remove(ctx, mirror)
	})
}

// MirrorChanged implements part.MirrorWatcher: if the mirror of a pod appeared, disappeared or was
// replaced, the pod's status is published again.
func (p *Mirrors) MirrorChanged(op podmgr.Op, mirror *v1.Pod) {
	pod, ok := p.host.PodByName(mirror.Namespace, mirror.Name)
	switch {
	case !ok:
		p.host.Housekeep()
	case op == podmgr.Reconcile:
		p.host.Reconcile(pod)
	default:
		p.ensure(pod)
		p.host.Republish(pod.UID)
	}
}

// isOrphaned reports whether the pod of a mirror is gone.
func (p *Mirrors) isOrphaned(mirror *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.orphaned[mirror.UID]
}

// outlived reports whether a mirror shows an earlier life of the pod; see [podlife.Outlived]. This
// also holds for a mirror with a terminal phase, if the pod was removed and came back before the
// cluster had deleted the mirror.
func (p *Mirrors) outlived(pod, mirror *v1.Pod) bool {
	if podmeta.IsTerminal(mirror.Status.Phase) && p.isOrphaned(mirror) {
		return true
	}
	var status *v1.PodStatus
	if st, ok := p.host.Status(pod.UID); ok {
		status = &st
	}
	return podlife.Outlived(p.host.Life(pod), status, p.host.Observed(pod.UID).ContainersRun(), mirror)
}

// PublishAs implements part.Publisher: the status of a static pod is published under its mirror.
// There is no object for it while the mirror is missing, is being deleted, belongs to an earlier
// version of the pod, or shows the end of an earlier life. Other pods are published under
// themselves.
func (p *Mirrors) PublishAs(pod *v1.Pod) (*v1.Pod, bool) {
	if !podmeta.IsStatic(pod) {
		return pod, true
	}
	m, ok := p.host.Mirror(pod.Namespace, pod.Name)
	if !ok || m.DeletionTimestamp != nil {
		return nil, false
	}
	hash, known := pod.Annotations[podmeta.AnnotationHash]
	if known && m.Annotations[podmeta.AnnotationMirror] != hash || p.outlived(pod, m) {
		return nil, false
	}
	return m, true
}
