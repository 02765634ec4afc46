//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// StartContainer starts a container that was created. A call that comes while
// it is started joins; afterwards it is a FailedPrecondition. One that cannot be
// started has exited, with code 128.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.lookContainer(ctx, id)
	if err != nil {
		return err
	}
	o, err := c.begin()
	if err != nil {
		return err
	}
	return o.wait(ctx)
}

// begin starts, or joins the start that is under way.
func (c *container) begin() (*op, error) {
	p := c.pod
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.starting != nil && !c.starting.finished():
		return c.starting, nil
	case c.gone:
		return nil, notFound("container", c.id)
	case c.removedLocked():
		return nil, errorf(codes.FailedPrecondition, "container %s is being removed", c.id)
	case c.record.State != containerCreated:
		return nil, errorf(codes.FailedPrecondition, "container %s is %s; want it created", c.id, c.record.State)
	}
	if err := p.readyLocked(); err != nil {
		return nil, err
	}
	o := newOp()
	c.starting = o
	c.record.State = containerStarting
	p.rt.do(func(ctx context.Context) { o.finish(coded(c.start(ctx))) })
	return o, nil
}

// start has the monitor start it. What fails before the monitor was told leaves
// it created.
func (c *container) start(ctx context.Context) error {
	p := c.pod
	_, x, err := p.rt.handler(p.handler)
	if err == nil {
		err = c.prepareStart()
	}
	var m monitorConn
	if err == nil {
		m, err = p.client(ctx)
	}
	if err != nil {
		c.unstart()
		return err
	}
	p.rt.do(c.keepRecord) // the monitor knows as well: nothing waits for the disk
	p.mu.Lock()
	what := c.monitoredLocked(x)
	p.mu.Unlock()
	return c.startBy(ctx, m, what)
}

// rejoin waits for a start that a monitor has under way for a process of the past.
func (c *container) rejoin(m monitorConn) {
	p := c.pod
	_, x, err := p.rt.handler(p.handler)
	if err != nil {
		return // the sandbox of a handler that is not configured any more
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.starting != nil && !c.starting.finished() {
		return
	}
	o, what := newOp(), c.monitoredLocked(x)
	c.starting, c.record.State = o, containerStarting
	p.rt.do(func(ctx context.Context) { o.finish(coded(c.startBy(ctx, m, what))) })
}

// asked is a monitor that is to start a container.
type asked struct {
	monitor  monitorConn
	answered *op // also when it will not answer any more
}

// startBy has a monitor start it, or joins the start that it has under way.
func (c *container) startBy(ctx context.Context, m monitorConn, what monitor.Container) error {
	p := c.pod
	a := asked{m, newOp()}
	p.mu.Lock()
	c.asked = a
	p.mu.Unlock()
	started, err := m.Start(ctx, what)
	if err == nil {
		c.began(start{processID{started.PID, started.StartTime}, started.At.UnixNano()})
	}
	a.answered.finish(nil)
	var failed *monitor.StartError
	switch {
	case err == nil:
	case errors.As(err, &failed):
		c.ended(startFailed(shown(failed.Message), time.Now().UnixNano()))
	case ctx.Err() != nil:
		return errStopped // the next runtime hears of it from the monitor
	default:
		p.rt.log.Warn("lost sight of start of container", zap.String("container", c.id), zap.Error(err))
		if errors.Is(err, monitor.ErrGone) {
			p.awaitFollower(ctx, m)
		}
		if c.isStarting() {
			if rerr := p.resolve(nil).wait(ctx); rerr != nil {
				return errors.Join(err, rerr)
			}
		}
	}
	return c.startedAs(err)
}

func (c *container) isStarting() bool {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.record.State == containerStarting
}

// startedAs is what a start came to.
func (c *container) startedAs(cause error) error {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	switch r := &c.record; {
	case r.State == containerCreated:
		return errorf(codes.Unavailable, "container %s was not started: %v", c.id, cause)
	case r.Reason == reasonStartError:
		return errorf(codes.Unknown, "failed to start container %s: %s", c.id, r.Message)
	}
	return nil
}

// prepareStart makes what a start needs, and refuses what must fail.
func (c *container) prepareStart() error {
	if err := c.joinable(); err != nil {
		return err
	}
	if l := c.logPath(); l != "" {
		if fi, err := os.Stat(filepath.Dir(l)); err != nil || !fi.IsDir() {
			return errorf(codes.FailedPrecondition, "log directory %.300q is not there: %v", filepath.Dir(l), err)
		}
	}
	if err := c.makeStreams(); err != nil {
		return fmt.Errorf("make directory of streams: %w", err)
	}
	return nil
}

// unstart is a start that did not begin.
func (c *container) unstart() {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if c.record.State == containerStarting {
		c.record.State = containerCreated
	}
}

// began notes that it runs. Its end may have been heard of already: then this
// says only when it began.
func (c *container) began(s start) {
	p := c.pod
	p.mu.Lock()
	fresh := c.record.Started == 0 && c.record.Reason != reasonStartError
	if fresh {
		c.record.Started = s.At
		c.record.Finished = max(c.record.Finished, min(c.record.Finished, 1)*s.At)
	}
	if c.record.State == containerStarting || c.record.State == containerCreated {
		c.record.State, c.record.Process = containerRunning, &s.Process
	}
	gone := c.gone
	p.mu.Unlock()
	if gone || !fresh {
		return
	}
	p.rt.do(c.keepRecord)
	p.tell(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, s.At)
}

// ended notes an end, once.
func (c *container) ended(e ending) {
	p := c.pod
	p.mu.Lock()
	if !c.record.State.may(containerExited) || c.record.State == containerExited {
		p.mu.Unlock()
		return
	}
	// The monitor may tell of the end before it has answered the start: without its
	// word, an agent that is killed now would never hear when that was.
	unheard := e.Started != 0 && c.record.Started == 0 && e.Reason != reasonStartError
	if e.Started == 0 && e.Reason != reasonStartError {
		e.Started = c.record.Started
	}
	c.record.end(e)
	o := newOp()
	c.cleaning = o
	c.closeExitedLocked()
	gone := c.gone
	p.mu.Unlock()
	if !gone && unheard {
		p.tell(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, e.Started)
	}
	if !gone {
		p.tell(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.finishedAt())
	}
	p.rt.do(c.keepRecord)
	p.rt.do(func(ctx context.Context) { o.finish(c.clean(ctx)) })
}

func (c *container) finishedAt() int64 {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.record.Finished
}

// lostLog counts log bytes that found no room.
func (c *container) lostLog(l *monitor.Lost) {
	c.pod.mu.Lock()
	if more := l.Bytes - min(c.lost, l.Bytes); more > 0 {
		c.rt().counts.lostLog.Add(more)
	}
	c.lost = max(c.lost, l.Bytes)
	c.pod.mu.Unlock()
	c.rt().log.Warn("lost log of container", zap.String("container", c.id), zap.Uint64("bytes", l.Bytes), zap.String("reason", l.Message))
}

// clean takes back what an end leaves.
func (c *container) clean(ctx context.Context) error {
	if err := c.undoStart(ctx); err != nil {
		return err
	}
	return c.unmount()
}

// undoStart takes back what a start made: processes, what the executor knows, and
// the cgroup.
func (c *container) undoStart(ctx context.Context) error {
	r := c.rt()
	_, x, err := r.handler(c.pod.handler)
	if err != nil {
		return err
	}
	c.pod.mu.Lock()
	cgroup := c.record.Cgroup
	c.pod.mu.Unlock()
	// Without a PID namespace of its own, others may run on.
	if c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() != runtimeapi.NamespaceMode_CONTAINER && cgroup != "" {
		if err := r.usage.KillCgroup(ctx, cgroup); err != nil {
			r.log.Warn("failed to kill what a container left", zap.String("container", c.id), zap.Error(err))
		}
	}
	if err := x.Delete(ctx, c.id, true); err != nil {
		return fmt.Errorf("delete from OCI runtime: %w", err)
	}
	if err := busy(ctx, func() error { return removeCgroup(cgroupRoot, cgroup) }); err != nil {
		r.log.Warn("failed to remove cgroup", zap.String("container", c.id), zap.Error(err))
	}
	return nil
}

// cleaned waits until what ran is cleaned away, and tries again if that failed.
func (c *container) cleaned(ctx context.Context) error {
	c.pod.mu.Lock()
	o := c.cleaning
	c.pod.mu.Unlock()
	if o == nil {
		return nil
	}
	if err := o.wait(ctx); err != nil {
		return c.clean(ctx)
	}
	return nil
}
