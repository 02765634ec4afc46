package pressure

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/gc"
)

// staleFor is how long the removal of a sandbox or container is remembered. By then the runtime
// has been listed again.
const staleFor = 10 * time.Minute

// Hold implements part.Holder. Until release is called, neither the pod's containers nor the
// images of its HoldImage calls are removed. By then, the runtime shows the containers that use
// these images.
func (p *Collection) Hold(ctx context.Context, uid types.UID) (since time.Time, release func(), err error) {
	free, err := p.containers.Hold(ctx, uid)
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("wait for the removal of dead containers: %w", err)
	}
	images := p.images.Hold()
	p.mu.Lock()
	since = p.stale[uid]
	p.held[uid] = images
	p.mu.Unlock()
	return since, func() {
		p.mu.Lock()
		if p.held[uid] == images {
			delete(p.held, uid)
		}
		p.mu.Unlock()
		images.Release()
		free()
	}, nil
}

// HoldImage implements part.Holder.
func (p *Collection) HoldImage(ctx context.Context, uid types.UID, image string, ensure func(context.Context) (id string, err error)) error {
	p.mu.Lock()
	h := p.held[uid]
	p.mu.Unlock()
	if h == nil { // the sync has ended, so nothing uses the image
		_, err := ensure(ctx)
		return err
	}
	look, err := h.Name(ctx, image)
	if err != nil {
		return fmt.Errorf("wait for the removal of image %q: %w", image, err)
	}
	for {
		id, err := ensure(ctx)
		if err != nil {
			return err
		}
		// An image that was removed under another name meanwhile is provided again.
		if intact, err := look.Got(ctx, id); intact || err != nil {
			return err
		}
	}
}

// KeepDead implements part.Holder. If the policy has a minimum age of dead containers, or no
// limit of their number, the result is -1: only the collector may remove them.
func (p *Collection) KeepDead() int {
	policy := gc.DefaultContainerPolicy()
	if p.cfg.ContainerPolicy != nil {
		policy = *p.cfg.ContainerPolicy
	}
	if policy.MinAge > 0 || policy.MaxPerContainer < 0 {
		return -1
	}
	return max(1, policy.MaxPerContainer)
}

// removed records that a sandbox or container of a pod was removed. The record is kept
// while the pod is held: the sync that follows may end before it has observed the pod
// again.
func (p *Collection) removed(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale[uid] = time.Now()
}

func (p *Collection) forgetStale(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, at := range p.stale {
		if now.Sub(at) > staleFor {
			delete(p.stale, uid)
		}
	}
}
