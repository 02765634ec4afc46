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

	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// StartContainer starts a created container. A call during the start joins it; a later call
// returns FailedPrecondition. A container that cannot be started has exited, with code 128.
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

// begin starts the container, or joins a start in progress.
func (c *container) begin() (*op, error) {
	p := c.pod
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.starting != nil && !c.starting.finished() && c.life.Want() == life.Run {
		return c.starting, nil
	}
	if err := p.readyLocked(); err != nil {
		return nil, err
	}
	if err := c.applyLocked(life.StartAsked{}); err != nil {
		return nil, c.notStartableLocked()
	}
	if c.starting == nil { // it was starting when an earlier process ended
		return nil, c.unrecovered()
	}
	return c.starting, nil
}

// unrecovered returns the error for calls while it is not known how far an earlier
// start got.
func (c *container) unrecovered() error {
	return errorf(codes.Unavailable, "container %s is being recovered", c.id)
}

// start makes the monitor start the container. If a step before that fails, the container remains
// created.
func (c *container) start(ctx context.Context) error {
	p := c.pod
	_, x, err := p.rt.handler(p.handler)
	if err == nil {
		err = c.prepareStart()
	}
	if err == nil {
		err = c.hook(ctx, HookStart)
	}
	var m monitorConn
	if err == nil {
		m, err = p.client(ctx)
	}
	if err != nil {
		_ = c.apply(life.NotTold{})
		return err
	}
	p.mu.Lock()
	if err = c.applyLocked(life.Told{}); err != nil || c.life.Phase() != life.Starting {
		err = c.notStartableLocked()
	}
	what := c.monitoredLocked(x)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.startBy(ctx, m, what); err != nil {
		return err
	}
	_ = c.hook(ctx, HookStarted)
	return nil
}

// rejoin waits for a start that an earlier process asked a monitor for and that is still in
// progress.
func (c *container) rejoin(ctx context.Context) error {
	p := c.pod
	_, x, err := p.rt.handler(p.handler)
	if err != nil {
		return err
	}
	p.mu.Lock()
	m, what := p.monitor, c.monitoredLocked(x)
	p.mu.Unlock()
	if m == nil {
		return errMonitorGone
	}
	return c.startBy(ctx, m, what)
}

// asked is the connection to the monitor that was asked to start a container.
type asked struct {
	monitor  monitorConn
	answered *op // closed even if it will not answer any more
}

// startsLocked reports whether a start is in progress that needs no recovery: no monitor was
// asked to start the container yet, or the monitor that was asked is still connected. The caller
// holds pod.mu.
func (c *container) startsLocked() bool {
	if c.life.Phase() != life.Starting || c.starting == nil || c.starting.finished() {
		return false
	}
	if c.asked.monitor == nil {
		return true
	}
	select {
	case <-c.asked.monitor.Done():
		return false
	default:
		return true
	}
}

// startBy makes a monitor start the container. If the monitor is starting it already, startBy
// waits for that start.
func (c *container) startBy(ctx context.Context, m monitorConn, params monitor.Container) error {
	p := c.pod
	a := asked{m, newOp()}
	p.mu.Lock()
	c.asked = a
	p.mu.Unlock()
	started, err := m.Start(ctx, params)
	if err == nil {
		_ = c.apply(beganOf(started))
	}
	a.answered.finish(nil)
	var failed *monitor.StartError
	switch {
	case err == nil:
	case errors.As(err, &failed):
		_ = c.apply(life.Ended{Ending: startFailed(shown(failed.Message), time.Now().UnixNano())})
	case ctx.Err() != nil:
		return errStopped // the monitor tells the next runtime
	default:
		p.rt.log.Warn("monitor did not report the result of container start", zap.String("container", c.id), zap.Error(err))
		if errors.Is(err, monitor.ErrGone) {
			p.awaitFollower(ctx, m)
		}
		if c.phase() == life.Starting {
			if rerr := p.resolve(nil).wait(ctx); rerr != nil {
				return errors.Join(err, rerr)
			}
		}
	}
	return c.startedAs(err)
}

// beganOf converts a monitor's message about a start.
func beganOf(s monitor.Started) life.Began {
	return life.Began{Process: life.Process{PID: s.PID, StartTime: s.StartTime}, At: s.At.UnixNano()}
}

// startedAs returns the result of a start for its caller. cause is the error of the start, or
// nil.
func (c *container) startedAs(cause error) error {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	switch r := c.life.Record(); {
	case r.Started == 0 && r.Finished == 0:
		return errorf(codes.Unavailable, "container %s was not started: %v", c.id, cause)
	case r.Reason == life.ReasonStartError:
		return errorf(codes.Unknown, "failed to start container %s: %s", c.id, r.Message)
	}
	return nil
}

// prepareStart creates what a start needs, and rejects a start that must fail.
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

// lostLog records log bytes that could not be written.
func (c *container) lostLog(l *monitor.Lost) {
	c.pod.mu.Lock()
	c.lost = max(c.lost, l.Bytes)
	c.pod.mu.Unlock()
	c.rt().log.Warn("dropped output of container: its log cannot be written", zap.String("container", c.id), zap.Uint64("bytes", l.Bytes), zap.String("reason", l.Message))
}

// clean removes the remains of an ended container, once its end is recorded: after that, the OCI
// runtime does not know the container any more.
func (c *container) clean(ctx context.Context) error {
	c.keepRecord(ctx)
	c.hookEnd(ctx)
	if err := c.undoStart(ctx); err != nil {
		return err
	}
	if err := c.unmount(); err != nil {
		return err
	}
	return c.apply(life.Cleaned{})
}

// undoStart removes what a start created: processes, the OCI runtime's state, and the cgroup.
func (c *container) undoStart(ctx context.Context) error {
	r := c.rt()
	_, x, err := r.handler(c.pod.handler)
	if err != nil {
		return err
	}
	c.pod.mu.Lock()
	cgroup := c.record.Cgroup
	c.pod.mu.Unlock()
	// Without its own PID namespace, other processes may still be running.
	if c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() != runtimeapi.NamespaceMode_CONTAINER && cgroup != "" {
		if err := r.usage.KillCgroup(ctx, cgroup); err != nil {
			r.log.Warn("failed to kill remaining processes of container", zap.String("container", c.id), zap.Error(err))
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

// cleaned waits until an ended container is cleaned up, and tries again if that failed.
func (c *container) cleaned(ctx context.Context) error {
	c.pod.mu.Lock()
	o := c.cleaning
	c.pod.mu.Unlock()
	if o != nil {
		if err := o.wait(ctx); ctx.Err() != nil {
			return err
		}
	}
	c.pod.mu.Lock()
	dirty := c.life.Dirty()
	c.pod.mu.Unlock()
	if !dirty {
		return nil
	}
	return c.clean(ctx)
}
