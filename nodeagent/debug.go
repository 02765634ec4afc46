package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmgr"
)

// Ephemeral containers of static pods, which no API server stores: people add them for debugging.

var _ local.Debugger = (*Node)(nil)

// Debug adds an ephemeral container to a static pod. The container ends with the pod or with the
// agent, which does not store it. For other pods the error is errors.ErrUnsupported.
func (n *Node) Debug(_ context.Context, pod *v1.Pod, r local.DebugRequest) error {
	with := pod.DeepCopy()
	with.Spec.EphemeralContainers = append(with.Spec.EphemeralContainers, r.Container())
	podmgr.Default(with)
	if err := podmgr.Validate(with).ToAggregate(); err != nil {
		return fmt.Errorf("%w: %w", local.ErrInvalid, err)
	}
	c := with.Spec.EphemeralContainers[len(pod.Spec.EphemeralContainers)]
	for _, s := range n.builder.debugged {
		if s.add(pod.UID, c) {
			return nil
		}
	}
	return fmt.Errorf("pod %s/%s comes from an API server; use kubectl debug: %w", pod.Namespace, pod.Name, errors.ErrUnsupported)
}

// debugged is a source of static pods with the ephemeral containers that people have added.
type debugged struct {
	podmgr.Source

	mu      sync.Mutex
	last    podmgr.Snapshot       // as the source delivered it
	deliver func(podmgr.Snapshot) // nil: the source does not run
	added   map[types.UID][]v1.EphemeralContainer
}

// Kind returns the kind of the wrapped source.
func (d *debugged) Kind() podmgr.Kind { return podmgr.KindOf(d.Source) }

// Run implements podmgr.Source.
func (d *debugged) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.deliver = nil
	}()
	return d.Source.Run(ctx, func(s podmgr.Snapshot) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last, d.deliver = s, deliver
		if !s.Partial {
			maps.DeleteFunc(d.added, func(uid types.UID, _ []v1.EphemeralContainer) bool { return d.pod(uid) == nil })
		}
		deliver(d.snapshot())
	})
}

// add adds a container to a pod, and reports whether the source has the pod.
func (d *debugged) add(uid types.UID, c v1.EphemeralContainer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deliver == nil || d.pod(uid) == nil {
		return false
	}
	if d.added == nil {
		d.added = map[types.UID][]v1.EphemeralContainer{}
	}
	d.added[uid] = append(d.added[uid], c)
	d.deliver(d.snapshot())
	return true
}

// pod returns a pod of the source; nil if there is none. The caller holds d.mu.
func (d *debugged) pod(uid types.UID) *v1.Pod {
	if i := slices.IndexFunc(d.last.Pods, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
		return d.last.Pods[i]
	}
	return nil
}

// snapshot returns the last snapshot with the added containers. The caller holds d.mu.
func (d *debugged) snapshot() podmgr.Snapshot {
	s := d.last
	s.Pods = slices.Clone(s.Pods)
	for i, p := range s.Pods {
		if more := d.added[p.UID]; len(more) > 0 {
			s.Pods[i] = p.DeepCopy()
			s.Pods[i].Spec.EphemeralContainers = slices.Clone(more)
		}
	}
	return s
}
