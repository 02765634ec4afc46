package status

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// How often the runtime is asked: the kubelet's 5 s, and more often while it is
// awaited. pollTimeout bounds one call. defaultRuntimeGrace is the kubelet's as
// well.
const (
	pollEvery           = 5 * time.Second
	pollLost            = time.Second
	pollStart           = 250 * time.Millisecond
	startPatience       = 2 * time.Minute
	pollTimeout         = 10 * time.Second
	defaultRuntimeGrace = 30 * time.Second
)

// pollWait is the time to the next look at a runtime. A runtime that comes up
// shortly after the agent is the common case at boot: the look every 250 ms gets
// pods going at once, and ends after startPatience lest a missing runtime cost CPU
// for ever. toGrace is the time until the runtime counts as down; 0 or less if it
// does already, or never answered.
func pollWait(well, everWell bool, sinceStart, toGrace time.Duration) time.Duration {
	wait := pollEvery
	switch {
	case well:
	case !everWell && sinceStart < startPatience:
		wait = pollStart
	default:
		wait = pollLost
	}
	if toGrace > 0 { // the moment of "down" is not missed
		wait = min(wait, toGrace)
	}
	return wait
}

// watchRuntime asks the runtime and the checks of health. first is closed after the
// first look. It is the only goroutine that asks for the state.
func (m *Manager) watchRuntime(ctx context.Context, first chan<- struct{}) {
	start, everWell, told := time.Now(), false, ""
	for {
		err := m.askRuntime(ctx)
		if ctx.Err() != nil {
			return
		}
		// The first look is reported by watchMachine, together with the machine's.
		if first != nil {
			close(first)
			first = nil
		} else {
			m.notice()
		}
		m.mu.Lock()
		problem, network, good := m.runtimeErr(), m.network, m.lastGood
		m.mu.Unlock()
		// One line for each change: a runtime that is away for hours does not fill
		// the log.
		if text := fmt.Sprint(err, problem, network); text != told {
			told = text
			m.cfg.Log.Info("container runtime", zap.NamedError("call", err), zap.NamedError("runtime", problem), zap.NamedError("network", network))
		}
		// Network counts as well: pods wait for it as for the runtime.
		well := err == nil && problem == nil && network == nil
		everWell = everWell || well
		var toGrace time.Duration
		if !good.IsZero() {
			toGrace = m.cfg.RuntimeGrace - time.Since(good)
		}
		select {
		case <-ctx.Done():
			return
		// Also while it was well: whoever sees the connection break knows before
		// the next look.
		case <-m.poll:
		case <-time.After(pollWait(well, everWell, time.Since(start), toGrace)):
		}
	}
}

// askRuntime takes in one answer. Without one nothing changes but the time that has
// passed since the last good one. It blocks for pollTimeout at most, and for
// Config.Checks, which answer from memory.
func (m *Manager) askRuntime(ctx context.Context) error {
	state, err := m.ask(ctx)
	var unwell []string
	for _, c := range m.cfg.Checks {
		if cerr := c.Err(); cerr != nil {
			unwell = append(unwell, fmt.Sprintf("%s is not healthy: %v", c.Name, cerr))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unwell = unwell
	// Network and conditions of before hold: a call that failed says nothing about
	// them.
	if err != nil {
		return err
	}
	m.network = nil
	if state.NetworkNotReady != "" {
		m.network = fmt.Errorf("container runtime network not ready: %s", state.NetworkNotReady)
	}
	// lastGood does not move: after the grace the node reports the runtime as down
	// beside the condition. Handlers and features of before stay.
	if state.NotReady != "" {
		m.runtime.NotReady, m.runtime.Name, m.runtime.Version = state.NotReady, state.Name, state.Version
		return nil
	}
	state.Handlers = sortedHandlers(state.Handlers)
	m.runtime, m.lastGood = state, time.Now()
	return nil
}

// ask asks the runtime, with a deadline: one that hangs is found out by it.
func (m *Manager) ask(ctx context.Context) (RuntimeState, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return m.cfg.Runtime.State(ctx)
}

// watchImages lists the images when they have changed, and now and then. It has a
// goroutine of its own, since a list of images can take seconds on a busy disk and
// must not delay the look at the runtime's health.
func (m *Manager) watchImages(ctx context.Context) {
	tick := time.NewTicker(imagesEvery)
	defer tick.Stop()
	for {
		images, err := m.listImages(ctx)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		// The first failure of a row is logged.
		if err != nil && m.listErr == nil {
			m.cfg.Log.Warn("images cannot be listed", zap.Error(err))
		}
		m.listed, m.listErr = images, err
		m.mu.Unlock()
		m.notice()
		again := tick.C
		if err != nil {
			again = time.After(refreshEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		// What comes during the pause is in the list; a later signal is kept by the
		// channel.
		case <-m.images:
			select { // pulls come in groups
			case <-ctx.Done():
				return
			case <-time.After(imagesSettle):
			}
		}
	}
}

// listImages lists the images as the status shows them: the rest need not stay in
// memory.
func (m *Manager) listImages(ctx context.Context) ([]v1.ContainerImage, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	list, err := m.cfg.Images.Images(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return showImages(list, m.cfg.MaxImages), nil
}
