package podruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/outputlimit"
	"github.com/nodewright/nodewright/internal/seconds"
)

// hookLimit is the longest time that a postStart hook may take. The kubelet has no such limit, so a
// postStart hook that hangs never ends. A preStop hook is limited by the grace period, and a sleep
// by its own length.
const hookLimit = 10 * time.Minute

// runHook runs a lifecycle handler: a command, a request, or a sleep. ips are
// the pod's addresses.
func (m *Manager) runHook(ctx context.Context, pod *v1.Pod, ips []string, c *v1.Container, id string, h *v1.LifecycleHandler) error {
	// A preStop hook comes with a deadline.
	if _, ok := ctx.Deadline(); !ok && h.Sleep == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, hookLimit)
		defer cancel()
	}
	switch {
	case h.Exec != nil:
		return m.execHook(ctx, c, id, h.Exec)
	case h.HTTPGet != nil && m.cfg.HTTPHook != nil:
		return m.cfg.HTTPHook(ctx, h.HTTPGet)
	case h.HTTPGet != nil:
		return m.httpHook(ctx, pod, ips, c, h.HTTPGet)
	case h.Sleep != nil:
		return m.sleepHook(ctx, seconds.Of(h.Sleep.Seconds))
	// The API still has the field for lifecycle handlers, and documents that it
	// fails.
	case h.TCPSocket != nil:
		return errors.New("hook has tcpSocket, which is not supported: want exec, httpGet or sleep")
	default:
		return errors.New("hook is empty: want exec, httpGet or sleep")
	}
}

// execHook runs a command in the container. If the command fails, its output goes into the log.
func (m *Manager) execHook(ctx context.Context, c *v1.Container, id string, e *v1.ExecAction) error {
	var timeout time.Duration
	// The runtime ends the command too: the end of a call does not kill what it
	// began.
	if d, ok := ctx.Deadline(); ok {
		timeout = time.Until(d)
	}
	out, errOut, err := m.rt.ExecSync(outputlimit.With(ctx, maxHookOutput), id, e.Command, timeout)
	if err != nil {
		m.cfg.Log.Info("hook command failed", zap.String("container", c.Name),
			zap.Strings("command", e.Command), zap.ByteString("stdout", cut(out)), zap.ByteString("stderr", cut(errOut)), zap.Error(err))
		return fmt.Errorf("run hook command: %w", err)
	}
	return nil
}

// maxHookOutput is how much of stdout and of stderr of a hook's command is logged, in bytes each.
const maxHookOutput = 1 << 10

// cut returns the first maxHookOutput bytes of b.
func cut(b []byte) []byte { return b[:min(len(b), maxHookOutput)] }

// sleepHook waits for d or until ctx ends. If ctx ends when d has already passed, the sleep does
// not count as interrupted.
func (m *Manager) sleepHook(ctx context.Context, d time.Duration) error {
	start := time.Now()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		slept := time.Since(start)
		// Timer and context ended together; select picks either.
		if slept >= d {
			return nil
		}
		m.met.sleepsCut.Inc()
		return fmt.Errorf("sleep hook: ended after %v of %v: %w", slept.Round(time.Millisecond), d, ctx.Err())
	}
}
