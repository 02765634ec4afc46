package mirrors

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// API makes and removes mirrors in a cluster. Calls for different pods overlap.
type API interface {
	// Ensure makes the mirror of a static pod. mirror is the one that is there
	// already, or nil: it stays if it is of this version of the pod, and is
	// replaced otherwise.
	Ensure(ctx context.Context, pod, mirror *v1.Pod) error
	// Remove deletes a mirror whose pod is not there any more.
	Remove(ctx context.Context, mirror *v1.Pod) error
}

// Config holds what a Part needs.
type Config struct {
	// API reaches the cluster. Required.
	API API
	// Log gets calls that failed. nil: silent.
	Log *zap.Logger
}

// Part keeps the mirrors of static pods. Its methods may be called from any
// goroutine, and only Run blocks.
type Part struct {
	cfg  Config
	host host // set by Join

	calls *calls
}

// host is what a Part needs of its agent.
type host interface {
	part.Host
	part.Mirrors
}

var (
	_ part.Joiner        = (*Part)(nil)
	_ part.Runner        = (*Part)(nil)
	_ part.Starter       = (*Part)(nil)
	_ part.Housekeeper   = (*Part)(nil)
	_ part.Publisher     = (*Part)(nil)
	_ part.MirrorWatcher = (*Part)(nil)
)

// New checks cfg and returns a Part at rest.
func New(cfg Config) (*Part, error) {
	if cfg.API == nil {
		return nil, errors.New("mirrors: Config.API is required")
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Part{cfg: cfg, calls: newCalls(cfg.Log)}, nil
}

// Name implements part.Part.
func (*Part) Name() string { return "mirrors" }

// Join implements part.Joiner. The host has to be a part.Mirrors.
func (p *Part) Join(h part.Host) error {
	if p.host != nil {
		return errors.New("mirrors: the part belongs to an agent already")
	}
	joined, ok := h.(host)
	if !ok {
		return fmt.Errorf("mirrors: the host, a %T, is no part.Mirrors", h)
	}
	p.host = joined
	return nil
}

// Run implements part.Runner: it waits for ctx to end, ends the calls of the
// API that are under way, and returns when they have returned.
func (p *Part) Run(ctx context.Context) error {
	<-ctx.Done()
	p.calls.close()
	return nil
}

// Syncing implements part.Starter.
func (p *Part) Syncing(pod *v1.Pod) { p.ensure(pod) }

// ensure has a static pod get its mirror. It does not wait for it.
func (p *Part) ensure(pod *v1.Pod) {
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
		return true, p.cfg.API.Ensure(ctx, pod, there)
	})
}

// Housekeep implements part.Housekeeper: it removes the mirrors of static pods
// that are gone, and over, and makes those that lack: of pods that came before the Node
// was registered, that were rejected, or that ended while the cluster did not answer.
// None of them may ever be synced again. Before every source has spoken a pod that nobody
// wants may still be wanted.
func (p *Part) Housekeep(desired []*v1.Pod) {
	if !p.host.AllReady() {
		return
	}
	for _, pod := range desired {
		// The mirror of an earlier version is kept until that has ended.
		if !podmeta.IsStatic(pod) || p.host.Terminating(podmeta.FullName(pod.Namespace, pod.Name)) {
			continue
		}
		if _, shown := p.PublishAs(pod); !shown {
			p.ensure(pod)
		}
	}
	for _, m := range p.host.Mirrors() {
		if _, ok := p.host.PodByName(m.Namespace, m.Name); !ok {
			p.remove(m.Namespace, m.Name)
		}
	}
}

// remove has an orphaned mirror be removed once its pod has ended.
func (p *Part) remove(namespace, name string) {
	fullName := podmeta.FullName(namespace, name)
	if p.host.Terminating(fullName) {
		return
	}
	p.calls.until(fullName, func(ctx context.Context) (bool, error) {
		mirror, ok := p.host.Mirror(namespace, name)
		if _, back := p.host.PodByName(namespace, name); back || !ok {
			return false, nil
		}
		return true, p.cfg.API.Remove(ctx, mirror)
	})
}

// MirrorChanged implements part.MirrorWatcher: a pod whose mirror came, went or
// was replaced publishes its status under it.
func (p *Part) MirrorChanged(op podmgr.Op, mirror *v1.Pod) {
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

// outlived reports whether a mirror says that its pod is over, which is not so: an agent
// before this one rejected the pod, and this one admits it anew, as the kubelet does. The
// phase of a pod of the API does not go back, so that it takes another mirror. A pod
// that had run and ended is not run again: its mirror may be all that is left of it.
func (p *Part) outlived(pod, mirror *v1.Pod) bool {
	if !podmeta.IsTerminal(mirror.Status.Phase) {
		return false
	}
	st, known := p.host.Status(pod.UID)
	if !known || st.Phase == "" {
		return len(mirror.Status.ContainerStatuses)+len(mirror.Status.InitContainerStatuses) == 0
	}
	return !podmeta.IsTerminal(st.Phase)
}

// PublishAs implements part.Publisher: a static pod's status is shown by its
// mirror, unless that is missing or being deleted, stands for an earlier version of
// the pod, or says that the pod is over which goes on: what became of another run is not
// this one's status. Any other pod's is shown by itself.
func (p *Part) PublishAs(pod *v1.Pod) (*v1.Pod, bool) {
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
