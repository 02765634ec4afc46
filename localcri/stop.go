//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// stopping is a stop that callers share. The earliest of their deadlines counts.
type stopping struct {
	*op
	deadline time.Time
	sooner   chan struct{} // has a token when deadline has changed
}

// StopContainer asks a container to end and kills it after timeout seconds; 0
// kills at once. It is not waited for longer than 10 s after that. One that has
// ended or is not there is no error.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	c, err := r.lookContainer(ctx, id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	const most = 100 * 365 * 24 * 3600
	return c.haltFor(ctx, time.Duration(max(0, min(timeout, most)))*time.Second)
}

// halt stops what runs or is about to.
func (c *container) halt(ctx context.Context, timeout time.Duration) error {
	return c.haltFor(ctx, timeout)
}

func (c *container) haltFor(ctx context.Context, timeout time.Duration) error {
	for {
		c.pod.mu.Lock()
		state, starting := c.record.State, c.starting
		if state == containerRunning {
			s := c.joinStopLocked(time.Now().Add(timeout))
			c.pod.mu.Unlock()
			return s.wait(ctx)
		}
		c.pod.mu.Unlock()
		if state != containerStarting {
			return nil
		}
		if starting == nil {
			return errorf(codes.Unavailable, "container %s is being recovered", c.id)
		}
		if err := starting.wait(ctx); ctx.Err() != nil {
			return err
		}
		if c.rt().base.Err() != nil {
			return errStopped
		}
	}
}

// joinStopLocked begins to stop, or joins. pod.mu is held.
func (c *container) joinStopLocked(deadline time.Time) *stopping {
	s := c.stop
	if s == nil || s.finished() {
		s = &stopping{op: newOp(), deadline: deadline, sooner: make(chan struct{}, 1)}
		c.stop = s
		process := *c.record.Process
		c.rt().do(func(ctx context.Context) { s.finish(coded(c.stopNow(ctx, s, process))) })
		return s
	}
	if deadline.Before(s.deadline) {
		s.deadline = deadline
		select {
		case s.sooner <- struct{}{}:
		default:
		}
	}
	return s
}

func (c *container) left(s *stopping) time.Duration {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return time.Until(s.deadline)
}

// stopNow sends the signal, waits, and kills.
func (c *container) stopNow(ctx context.Context, s *stopping, process processID) error {
	r := c.rt()
	if c.left(s) > 0 {
		c.pod.mu.Lock()
		signal := stopSignal(c.config.GetStopSignal(), c.record.StopSignal)
		c.pod.mu.Unlock()
		if err := r.processes.Signal(process, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			r.log.Warn("failed to signal container", zap.String("container", c.id), zap.Stringer("signal", signal), zap.Error(err))
		}
		if ended, err := c.awaitEnd(ctx, s); ended || err != nil {
			return err
		}
	}
	return c.kill(ctx, process)
}

// awaitEnd waits for the end, or for the deadline, which may come closer.
func (c *container) awaitEnd(ctx context.Context, s *stopping) (bool, error) {
	for {
		t := time.NewTimer(c.left(s))
		select {
		case <-c.exited:
			t.Stop()
			return true, nil
		case <-t.C:
			return false, nil
		case <-s.sooner:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return false, errStopped
		}
	}
}

// kill ends all processes, and waits until the first one is gone.
func (c *container) kill(ctx context.Context, process processID) error {
	r := c.rt()
	c.pod.mu.Lock()
	cgroup := c.record.Cgroup
	c.pod.mu.Unlock()
	// The first one at once; then whatever it may have left.
	var errs []error
	if err := r.processes.Signal(process, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		errs = append(errs, fmt.Errorf("kill process %d: %w", process.PID, err))
	}
	if cgroup != "" {
		if err := r.usage.KillCgroup(ctx, cgroup); err != nil {
			errs = append(errs, fmt.Errorf("kill processes of the cgroup: %w", err))
		}
	}
	t := time.NewTimer(killPatience)
	defer t.Stop()
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		return errStopped
	case <-t.C:
	}
	_, state, err := r.processes.Start(process.PID)
	if err != nil {
		state = "gone"
	}
	why := errors.Join(errs...)
	if why == nil {
		return errorf(codes.DeadlineExceeded, "container %s has not ended %v after SIGKILL: process %d is in state %s", c.id, killPatience, process.PID, state)
	}
	return errorf(codes.DeadlineExceeded, "container %s has not ended %v after SIGKILL: process %d is in state %s: %v", c.id, killPatience, process.PID, state, why)
}

// RemoveContainer removes a container, which is killed if it runs. One that is
// not there is no error. Its files go afterwards.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.lookContainer(ctx, id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.removeContainer(c).wait(ctx)
}

// removeContainer begins to remove, or joins who does.
func (r *Runtime) removeContainer(c *container) *op {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	if c.removedLocked() {
		return c.removing
	}
	o := newOp()
	c.removing = o
	r.do(func(ctx context.Context) { o.finish(coded(r.removeNow(ctx, c))) })
	return o
}

// removedLocked reports whether a removal is under way or done: no start begins from then on,
// unless it fails. pod.mu is held.
func (c *container) removedLocked() bool {
	return c.removing != nil && (!c.removing.finished() || c.removing.err == nil)
}

// removeNow has it gone for callers; the rest goes in the background.
func (r *Runtime) removeNow(ctx context.Context, c *container) error {
	if err := c.halt(ctx, 0); err != nil {
		return err
	}
	if c.claim != nil {
		c.claim.drop()
	}
	c.pod.mu.Lock()
	c.record.State = containerRemoving
	c.pod.mu.Unlock()
	if err := c.save(ctx); err != nil {
		// A full disk must not keep what fills it: what has no record is undone
		// at the next start.
		r.log.Warn("failed to write record of removal", zap.String("container", c.id), zap.Error(err))
		if err := c.saver.remove(ctx, r.containerRecords, c.id); err != nil {
			return fmt.Errorf("remove record: %w", err)
		}
	}
	c.forget()
	c.pod.tell(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, 0)
	r.do(func(ctx context.Context) {
		err := c.erase(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("failed to remove container", zap.String("container", c.id), zap.Error(err))
			r.persist(ctx, "failed to remove container", c.id, func() error { return c.erase(ctx) })
		}
	})
	return nil
}

// erase removes all of a container that does not run, and its record last. It
// may be repeated.
func (c *container) erase(ctx context.Context) error {
	p := c.pod
	p.mu.Lock()
	m := p.monitor
	// A start may have left something though it came to nothing.
	tried := c.cleaning == nil && (c.starting != nil || c.claim == nil)
	p.mu.Unlock()
	if err := c.cleaned(ctx); err != nil {
		return err
	}
	if tried {
		if err := c.clean(ctx); err != nil {
			return err
		}
	}
	if m != nil {
		step, cancel := context.WithTimeout(ctx, monitorTimeout)
		err := m.Forget(step, c.id)
		cancel()
		if err != nil && !errors.Is(err, monitor.ErrUnknown) && !errors.Is(err, monitor.ErrGone) {
			return fmt.Errorf("forget container: %w", err) // it would come back with the next start
		}
	}
	return p.rt.eraseContainer(ctx, c.id, c.saver)
}

// eraseContainer removes what bears the ID of a container that does not run.
func (r *Runtime) eraseContainer(ctx context.Context, id string, s *saver) error {
	if err := r.unmountAll(id); err != nil {
		return err
	}
	if err := errors.Join(removeTree(r.rootPath(containersDir, id)), removeTree(r.statePath(streamsDir, id))); err != nil {
		return err
	}
	if err := r.releaseImages(ctx, id); err != nil {
		return err
	}
	return s.remove(ctx, r.containerRecords, id)
}
