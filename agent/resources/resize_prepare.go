package resources

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podruntime"
)

// Prepare implements part.Preparer. When it returns nil, the record of the pod's allocation is on
// the disk, and its containers may be changed.
func (p *Resize) Prepare(ctx context.Context, pod *v1.Pod, _ *observed.Pod) error {
	if err := p.confirm(ctx, pod); err != nil {
		return err
	}
	err := p.record(ctx, pod.UID)
	if err == nil || ctx.Err() != nil {
		return err
	}
	err = podlife.WithReason(podruntime.ReasonResize, fmt.Errorf("write allocation record: %w", err))
	p.failed(pod, err)
	return err
}

// unsure reports whether the pod's containers may have other resources than those allocated; see
// state.resized.
func (p *Resize) unsure(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	return s != nil && s.resized
}

// confirm waits until the records have been read, if the pod's containers may have been resized: a
// sync with the resources of their creation would undo the resize.
func (p *Resize) confirm(ctx context.Context, pod *v1.Pod) error {
	if !p.unsure(pod.UID) {
		return nil
	}
	select {
	case <-p.restored:
		return p.confirmed(pod)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errAnew ends a sync whose input is outdated, and requests another sync.
var errAnew = errors.New("the pod's allocation changed during the sync")

// confirmed returns errAnew unless the sync uses the allocation of the records.
func (p *Resize) confirmed(pod *v1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[pod.UID]
	if s == nil {
		return nil
	}
	if s.allocated.differs(pod) {
		return errAnew
	}
	s.resized = false
	return nil
}
