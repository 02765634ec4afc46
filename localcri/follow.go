//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

var errMonitorGone = errors.New("the monitor ended")

// client returns the connection to the sandbox's monitor, and starts a monitor if there is none.
// After the loss of a monitor, its successor first takes over the running containers.
func (p *pod) client(ctx context.Context) (monitorConn, error) {
	p.mu.Lock()
	o := p.resolving
	p.mu.Unlock()
	if o != nil {
		if err := o.wait(ctx); err != nil {
			return nil, err
		}
	}
	return p.launched(ctx)
}

// launched does the work of client, but does not wait for a recovery. The recovery itself calls
// it.
func (p *pod) launched(ctx context.Context) (monitorConn, error) {
	p.mu.Lock()
	if m := p.monitor; m != nil {
		p.mu.Unlock()
		return m, nil
	}
	o := p.launching
	if o == nil || o.finished() {
		o = newOp()
		p.launching = o
		p.rt.do(func(ctx context.Context) { o.finish(p.launch(ctx)) })
	}
	p.mu.Unlock()
	if err := o.wait(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.monitor == nil {
		return nil, errMonitorGone
	}
	return p.monitor, nil
}

func (p *pod) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	m, err := p.rt.monitors.Launch(ctx, p.id)
	if err != nil {
		return err
	}
	p.setMonitor(m)
	return nil
}

// setMonitor makes m the sandbox's monitor and follows it.
func (p *pod) setMonitor(m monitorConn) {
	f := following{of: m, op: newOp()}
	p.mu.Lock()
	p.monitor, p.following = m, f
	p.mu.Unlock()
	p.rt.do(func(ctx context.Context) {
		p.follow(ctx, m)
		f.op.finish(nil)
	})
}

// following is the goroutine that follows a monitor. It is done when everything that
// the end of the monitor requires has been handled.
type following struct {
	of        monitorConn
	op        *op
	dismissed bool // the monitor is no longer needed
}

// awaitFollower waits until the goroutine that followed a lost monitor has recovered its
// containers: only that goroutine has the descriptors that the connection kept.
func (p *pod) awaitFollower(ctx context.Context, m monitorConn) {
	select {
	case <-m.Done():
	case <-ctx.Done():
		return
	}
	p.mu.Lock()
	f := p.following
	p.mu.Unlock()
	if f.of == m {
		_ = f.op.wait(ctx)
	}
}

// follow receives a monitor's messages until the monitor ends.
func (p *pod) follow(ctx context.Context, m monitorConn) {
	for {
		select {
		case e, ok := <-m.Events():
			if !ok {
				p.lost(ctx, m)
				return
			}
			p.heard(e)
		case <-m.Done():
			for { // messages from before its end
				select {
				case e, ok := <-m.Events():
					if ok {
						p.heard(e)
						continue
					}
				default:
				}
				break
			}
			p.lost(ctx, m)
			return
		case <-ctx.Done():
			return
		}
	}
}

func (p *pod) heard(e monitor.Event) {
	switch {
	case e.Exit != nil && e.Exit.ID == p.id:
		p.infraEnded()
	case e.Exit != nil:
		if c := p.find(e.Exit.ID); c != nil {
			end := endingOf(*e.Exit)
			if e.Exit.Reason == monitor.ReasonNotExecuted {
				end.Message = c.program() + messageNotExecuted
			}
			_ = c.apply(life.Ended{Ending: end})
		}
	case e.Lost != nil:
		if c := p.find(e.Lost.ID); c != nil {
			c.lostLog(e.Lost)
		}
	}
}

func (p *pod) find(id string) *container {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.containers[id]
}

// messageNotExecuted is the end of a message that begins with the name of a program.
const messageNotExecuted = "the kernel refused to execute the program (of another architecture, or without its interpreter); the log of the container has the reason"

// program returns the path of the program that a container executes, for a message. It returns ""
// if config.json cannot be read.
func (c *container) program() string {
	p, err := c.firstProcess()
	if err != nil || len(p.Args) == 0 {
		return ""
	}
	return fmt.Sprintf("%.200q: ", p.Args[0])
}

// endingOf converts a monitor's message about an end.
func endingOf(e monitor.Exit) life.Ending {
	out := life.Ending{Finished: e.At.UnixNano(), Code: e.Code, LostLog: e.LostLogBytes, Reason: reasonOf(e.Code, e.OOM, e.Reason)}
	switch e.Reason {
	case monitor.ReasonMonitorLost:
		out.Message = "its monitor had ended, and this kernel does not keep the exit code"
	case monitor.ReasonNotExecuted:
		out.Reason, out.Message = life.ReasonStartError, messageNotExecuted
		return out
	}
	if !e.StartedAt.IsZero() {
		out.Started = e.StartedAt.UnixNano()
	}
	return out
}

// lost handles the unexpected end of a monitor: a successor takes over the running containers.
func (p *pod) lost(ctx context.Context, m monitorConn) {
	p.mu.Lock()
	wanted := p.monitor == m && !p.following.dismissed
	if p.monitor == m {
		p.monitor = nil
	}
	if !wanted || ctx.Err() != nil {
		p.mu.Unlock()
		m.Close()
		return
	}
	o := p.resolveLocked(m)
	p.mu.Unlock()
	defer m.Close()
	p.rt.log.Warn("monitor of sandbox died; starting another one", zap.String("sandbox", p.id), zap.Int("pid", m.PID()))
	switch err := o.wait(ctx); {
	case err == nil:
		p.rt.log.Info("started another monitor for sandbox", zap.String("sandbox", p.id))
	case ctx.Err() == nil:
		p.rt.log.Error("failed to start another monitor for sandbox", zap.String("sandbox", p.id), zap.Error(err))
		p.rt.persist(ctx, "failed to start another monitor for sandbox", p.id, func() error { return p.resolve(nil).wait(ctx) })
	}
}

// awaitAnswers waits until the answers that a monitor gave before its end are recorded, so that
// a container that it has started counts as running.
func (p *pod) awaitAnswers(ctx context.Context, m monitorConn) {
	for _, c := range p.list() {
		p.mu.Lock()
		a := c.asked
		p.mu.Unlock()
		if a.monitor == m {
			_ = a.answered.wait(ctx)
		}
	}
}

// resolve finds out which containers of a lost monitor still run, and makes another monitor take
// over these. dead is the connection to the lost monitor, or nil. If a resolve is running
// already, a second one follows it, since the running one may have begun before the monitor was
// lost.
func (p *pod) resolve(dead monitorConn) *op {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resolveLocked(dead)
}

func (p *pod) resolveLocked(dead monitorConn) *op {
	before := p.resolving
	p.resolving = p.rt.begin(func(ctx context.Context) error {
		if before != nil {
			_ = before.wait(ctx)
		}
		if dead != nil {
			p.awaitAnswers(ctx, dead)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return p.recoverPod(ctx, dead)
	})
	return p.resolving
}

// dismiss ends a monitor that is no longer needed. If that fails, [pod.erase] ends it.
func (p *pod) dismiss(ctx context.Context) {
	if err := p.endMonitor(ctx); err != nil && ctx.Err() == nil {
		p.rt.log.Warn("failed to end monitor", zap.String("sandbox", p.id), zap.Error(err))
	}
}

// endMonitor ends the monitor, if there is one. If the monitor has not noticed the end of its
// last container yet, endMonitor waits.
func (p *pod) endMonitor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	p.mu.Lock()
	m := p.monitor
	p.following.dismissed = true
	p.mu.Unlock()
	if m == nil {
		var err error
		if m, _, err = p.rt.monitors.Connect(ctx, p.id); errors.Is(err, monitor.ErrGone) {
			return nil
		}
		if err != nil {
			return err
		}
		defer m.Close()
	}
	err := busyMonitor(ctx, func() error { return m.Quit(ctx) })
	if errors.Is(err, monitor.ErrGone) {
		return nil
	}
	return err
}
