//go:build linux

package localcri

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/life"
)

// apply applies an event to a container's state and starts the resulting work. An event that is
// not possible now is a [*life.Refused] and changes nothing.
func (c *container) apply(e life.Event) error {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.applyLocked(e)
}

// applyLocked is apply for a caller that holds pod.mu.
func (c *container) applyLocked(e life.Event) error {
	effects, err := c.life.Step(e)
	if err != nil {
		return c.rt().refused("container", c.id, err)
	}
	for _, f := range effects {
		c.effectLocked(f)
	}
	return nil
}

func (c *container) effectLocked(f life.Effect) {
	r := c.rt()
	switch f := f.(type) {
	case life.Save:
		r.do(c.keepRecord)
	case life.Announce:
		c.pod.tell(newsOf(f.What), c.id, f.At)
	case life.Release:
		close(c.exited)
	case life.Start:
		c.asked = asked{}
		c.starting = r.begin(c.start)
	case life.Join:
		if c.starting == nil || c.starting.finished() {
			c.asked = asked{}
			c.starting = r.begin(c.rejoin)
		}
	case life.End:
		c.joinStopLocked(f.Until)
	case life.Clean:
		c.cleaning = r.begin(c.clean)
	case life.Withdraw:
		c.claim.drop()
		c.removal = r.begin(c.withdraw)
	case life.Undo:
		c.claim.drop()
		c.removal = r.begin(c.undo)
	}
}

// apply applies an event to a sandbox's state and starts the resulting work.
func (p *pod) apply(e life.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applyLocked(e)
}

// applyLocked is apply for a caller that holds p.mu.
func (p *pod) applyLocked(e life.Event) error {
	effects, err := p.life.Step(e)
	if err != nil {
		return p.rt.refused("sandbox", p.id, err)
	}
	for _, f := range effects {
		p.effectLocked(f)
	}
	return nil
}

func (p *pod) effectLocked(f life.Effect) {
	switch f := f.(type) {
	case life.Announce:
		p.tell(newsOf(f.What), p.id, f.At)
	case life.TearDown:
		p.stop = p.rt.begin(p.stopNow)
	case life.Withdraw:
		for _, c := range p.containers { // they are removed with it
			_ = c.applyLocked(life.RemoveAsked{})
		}
		p.claim.drop()
		p.removal = p.rt.begin(p.withdraw)
	case life.Undo:
		p.claim.drop()
		p.removal = p.rt.begin(p.undo)
	}
}

func newsOf(n life.News) runtimeapi.ContainerEventType {
	if n == life.NewsStarted {
		return runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	}
	return runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
}

// begin starts f in the background. Callers may wait for the result.
func (r *Runtime) begin(f func(ctx context.Context) error) *op {
	o := newOp()
	r.do(func(ctx context.Context) { o.finish(coded(f(ctx))) })
	return o
}

// refused counts and logs a refused event, and returns err.
func (r *Runtime) refused(kind, id string, err error) error {
	var refused *life.Refused
	if errors.As(err, &refused) {
		r.refusals.WithLabelValues(string(refused.From), refused.Event).Inc()
		r.do(func(context.Context) { // not with the pod's lock held
			r.log.Warn("state machine refused an event", zap.String("kind", kind), zap.String("id", id), zap.Error(err))
		})
	}
	return err
}

// notStartableLocked returns the error for a start that was refused.
func (c *container) notStartableLocked() error {
	switch phase, want := c.life.Phase(), c.life.Want(); {
	case c.life.Going():
		return notFound("container", c.id)
	case want == life.Remove:
		return errorf(codes.FailedPrecondition, "container %s is being removed", c.id)
	case want == life.Stop && (phase == life.Created || phase == life.Starting):
		return errorf(codes.FailedPrecondition, "container %s was stopped before it was started", c.id)
	default:
		return errorf(codes.FailedPrecondition, "container %s is %s; want it created", c.id, phase)
	}
}
