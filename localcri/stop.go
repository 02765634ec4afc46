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

	"github.com/nodewright/nodewright/internal/wake"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// stopping is a stop in progress that several callers may share. The container is killed at the
// earliest of the callers' deadlines.
type stopping struct {
	*op
	deadline time.Time
	sooner   wake.Signal // set when deadline has changed
}

// StopContainer asks a container to stop and kills it after timeout seconds. If timeout is 0, it
// kills the container at once. It waits at most 10 s after the kill. It is not an error if the
// container has ended or does not exist.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	c, err := r.lookContainer(ctx, id)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	const most = 100 * 365 * 24 * 3600
	return c.halt(ctx, time.Duration(max(0, min(timeout, most)))*time.Second)
}

// halt stops a container that is running or starting.
func (c *container) halt(ctx context.Context, timeout time.Duration) error {
	if err := c.apply(life.StopAsked{Until: time.Now().Add(timeout)}); err != nil {
		return err
	}
	return c.awaitHalt(ctx)
}

// awaitHalt waits until a container that is being stopped has ended.
func (c *container) awaitHalt(ctx context.Context) error {
	c.pod.mu.Lock()
	starting := c.starting
	c.pod.mu.Unlock()
	if starting != nil {
		if err := starting.wait(ctx); ctx.Err() != nil {
			return err
		}
		if c.rt().base.Err() != nil {
			return errStopped
		}
	}
	c.pod.mu.Lock()
	phase, s := c.life.Phase(), c.stop
	c.pod.mu.Unlock()
	switch phase {
	case life.Starting:
		return c.unrecovered()
	case life.Running:
		return s.wait(ctx)
	}
	return nil
}

// joinStopLocked starts a stop, or joins the one in progress. The caller holds pod.mu.
func (c *container) joinStopLocked(deadline time.Time) {
	s := c.stop
	if s == nil || s.finished() {
		s = &stopping{deadline: deadline, sooner: wake.New()}
		process := *c.life.Record().Process
		s.op = c.rt().begin(func(ctx context.Context) error { return c.stopNow(ctx, s, process) })
		c.stop = s
		return
	}
	if deadline.Before(s.deadline) {
		s.deadline = deadline
		s.sooner.Set()
	}
}

func (c *container) left(s *stopping) time.Duration {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return time.Until(s.deadline)
}

// stopNow sends the stop signal, waits, and kills.
func (c *container) stopNow(ctx context.Context, s *stopping, process life.Process) error {
	r := c.rt()
	if c.left(s) > 0 {
		c.pod.mu.Lock()
		signal := stopSignal(c.config.GetStopSignal(), c.record.StopSignal)
		c.pod.mu.Unlock()
		ask := func() (again bool) {
			err := r.processes.Signal(process, signal)
			if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, errNoHandler) {
				r.log.Warn("failed to signal container", zap.String("container", c.id), zap.Stringer("signal", signal), zap.Error(err))
			}
			return errors.Is(err, errNoHandler)
		}
		if ended, err := c.awaitEnd(ctx, s, ask); ended || err != nil {
			return err
		}
	}
	return c.kill(ctx, process)
}

// awaitEnd calls ask, which sends the stop signal. Then it waits until the process ends or the
// deadline passes. Other callers may move the deadline forward meanwhile. A program that has just
// started may not have a signal handler yet; in that case ask returns true, and awaitEnd calls it
// again.
func (c *container) awaitEnd(ctx context.Context, s *stopping, ask func() (again bool)) (bool, error) {
	const most = time.Second
	again, pause := ask(), 10*time.Millisecond
	for {
		wait := c.left(s)
		if wait <= 0 {
			return false, nil
		}
		if again {
			wait, pause = min(wait, pause), min(2*pause, most)
		}
		t := time.NewTimer(wait)
		select {
		case <-c.exited:
			t.Stop()
			return true, nil
		case <-t.C:
			if again && c.left(s) > 0 {
				again = ask()
			}
		case <-s.sooner:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return false, errStopped
		}
	}
}

// kill kills all processes, and waits until the first one is gone.
func (c *container) kill(ctx context.Context, process life.Process) error {
	r := c.rt()
	c.pod.mu.Lock()
	cgroup := c.record.Cgroup
	c.pod.mu.Unlock()
	// First the first process, then everything that it may have left.
	var errs []error
	if err := r.processes.Signal(process, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		errs = append(errs, fmt.Errorf("kill process %d: %w", process.PID, err))
	}
	if cgroup != "" {
		if err := r.usage.KillCgroup(ctx, cgroup); err != nil {
			errs = append(errs, fmt.Errorf("kill processes of the cgroup: %w", err))
		}
	}
	t := time.NewTimer(killTimeout)
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
		return errorf(codes.DeadlineExceeded, "container %s has not ended %v after SIGKILL: process %d is in state %s", c.id, killTimeout, process.PID, state)
	}
	return errorf(codes.DeadlineExceeded, "container %s has not ended %v after SIGKILL: process %d is in state %s: %v", c.id, killTimeout, process.PID, state, why)
}

// RemoveContainer removes a container, killing it if it is running, and returns when its files
// are gone. A missing container is not an error.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.goingContainer(ctx, id)
	if isNotFound(err) || err == nil && !c.visible() && !c.going() {
		return nil
	}
	if err != nil {
		return err
	}
	return c.remove(ctx)
}

func (c *container) remove(ctx context.Context) error {
	if err := c.apply(life.RemoveAsked{}); err != nil {
		return err
	}
	return c.awaitRemoval(ctx)
}

// awaitRemoval waits until a container that is being removed is gone. It waits for its creation,
// its start and its end first.
func (c *container) awaitRemoval(ctx context.Context) error {
	if c.claim != nil {
		if err := c.claim.wait(ctx); ctx.Err() != nil {
			return err
		}
	}
	if err := c.awaitHalt(ctx); err != nil {
		return err
	}
	return c.removed(ctx)
}

// removed waits until the removal in progress has ended, and returns its error. If there is none,
// it returns the result of unrecovered.
func (c *container) removed(ctx context.Context) error {
	c.pod.mu.Lock()
	o := c.removal
	c.pod.mu.Unlock()
	if o == nil {
		return c.unrecovered()
	}
	return o.wait(ctx)
}

// withdraw removes a container with its files, so that the disk space is free when it returns.
// What cannot be removed at once is removed in the background.
func (c *container) withdraw(ctx context.Context) error {
	r := c.rt()
	err := c.save(ctx)
	if err != nil {
		// A full disk must not prevent the removal of what fills it: a container without a record
		// is removed at the next start.
		r.log.Warn("failed to write record of removal", zap.String("container", c.id), zap.Error(err))
		if err = c.saver.remove(ctx, r.containerRecords, c.id); err != nil {
			err = fmt.Errorf("remove record: %w", err)
		}
	}
	c.hookRemoval(ctx, false)
	c.forget()
	c.pod.tell(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, 0)
	r.persistFrom(ctx, "failed to remove container", c.id, c.erase)
	return err
}

// undo removes a container that callers have not seen. What cannot be removed at once is removed
// in the background.
func (c *container) undo(ctx context.Context) error {
	c.hookRemoval(ctx, true)
	c.forget()
	c.rt().persistFrom(ctx, "failed to undo container", c.id, c.erase)
	return nil
}

// erase removes everything of a container that is not running; the record is removed last. It may
// be called again.
func (c *container) erase(ctx context.Context) error {
	if err := c.cleaned(ctx); err != nil {
		return err
	}
	p := c.pod
	p.mu.Lock()
	m := p.monitor
	p.mu.Unlock()
	if m != nil {
		step, cancel := context.WithTimeout(ctx, monitorTimeout)
		err := m.Forget(step, c.id)
		cancel()
		if err != nil && !errors.Is(err, monitor.ErrUnknown) && !errors.Is(err, monitor.ErrGone) {
			return fmt.Errorf("forget container: %w", err) // otherwise the container would be back after the next start
		}
	}
	if err := p.rt.eraseContainer(ctx, c.id, c.saver); err != nil {
		return err
	}
	p.rt.mu.Lock()
	delete(p.rt.erasing, c.id)
	p.rt.mu.Unlock()
	return c.apply(life.Erased{})
}

// eraseContainer removes all files, mounts and leases of a container's ID. The
// container must not be running.
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
