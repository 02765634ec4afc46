package status

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
)

// Intervals of calls to the runtime: 5 s, as in the kubelet, and shorter ones until the
// runtime answers. pollTimeout limits one call. runtimeGrace is how long a runtime may give no
// answer before the node is not ready, as in the kubelet. It is longer than a restart of the
// runtime, since all pods of a node count as not ready while the node is not ready.
const (
	pollEvery    = 5 * time.Second
	pollLost     = time.Second
	pollStart    = 250 * time.Millisecond
	pollStartFor = 2 * time.Minute
	pollTimeout  = 10 * time.Second
	runtimeGrace = 30 * time.Second
)

// pollWait returns the time to the next call of the runtime. At boot the runtime often starts
// shortly after the agent: with a call every 250 ms, pods start soon after the runtime. After
// pollStartFor calls are less frequent, to save CPU on a machine without a runtime. toGrace is
// the time until the runtime counts as down. It is 0 or negative if the runtime counts as down
// already, or has never answered.
func pollWait(well, everWell bool, sinceStart, toGrace time.Duration) time.Duration {
	wait := pollEvery
	switch {
	case well:
	case !everWell && sinceStart < pollStartFor:
		wait = pollStart
	default:
		wait = pollLost
	}
	if toGrace > 0 { // the moment of "down" is not missed
		wait = min(wait, toGrace)
	}
	return wait
}

// watchRuntime calls the runtime and the health checks. first is closed after the
// first round. No other goroutine reads the runtime's state.
func (m *Manager) watchRuntime(ctx context.Context, first chan<- struct{}) {
	start, everWell, told := time.Now(), false, ""
	for {
		err := m.askRuntime(ctx)
		if ctx.Err() != nil {
			return
		}
		// watchMachine reports the first round, together with the machine's.
		if first != nil {
			close(first)
			first = nil
		} else {
			m.notice()
		}
		m.mu.Lock()
		problem, network, good := m.runtimeErr(), m.network, m.lastGood
		m.mu.Unlock()
		// A change is logged once, so that a runtime that is down for hours does not fill the log.
		if text := fmt.Sprint(err, problem, network); text != told {
			told = text
			m.cfg.Log.Info("state of container runtime changed", zap.NamedError("call", err), zap.NamedError("runtime", problem), zap.NamedError("network", network))
		}
		// The network counts too: pods wait for it as for the runtime.
		well := err == nil && problem == nil && network == nil
		everWell = everWell || well
		var toGrace time.Duration
		if !good.IsZero() {
			toGrace = runtimeGrace - time.Since(good)
		}
		select {
		case <-ctx.Done():
			return
		// Also while the runtime is well: the owner of the connection detects a failure before the
		// next call.
		case <-m.poll:
		case <-time.After(pollWait(well, everWell, time.Since(start), toGrace)):
		}
	}
}

// askRuntime calls the runtime once, and stores the answer. If there is no answer, the
// stored state stays, and runtimeErr computes the runtime's problem from its age. It
// blocks for pollTimeout at most, and for Config.Checks, which read only memory.
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
	// After a failed call the previous network state and conditions stay: the failure says nothing
	// about them.
	if err != nil {
		return err
	}
	m.network = nil
	if state.NetworkNotReady != "" {
		m.network = fmt.Errorf("container runtime network not ready: %s", state.NetworkNotReady)
	}
	// lastGood is not set, so that after the grace period the node reports the runtime as down, in
	// addition to the condition. Earlier handlers and features are kept.
	if state.NotReady != "" {
		m.runtime.NotReady, m.runtime.Name, m.runtime.Version = state.NotReady, state.Name, state.Version
		return nil
	}
	state.Handlers = sortedHandlers(state.Handlers)
	m.runtime, m.lastGood = state, time.Now()
	return nil
}

// ask calls the runtime with a deadline.
func (m *Manager) ask(ctx context.Context) (RuntimeState, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return m.cfg.Runtime.State(ctx)
}

// watchImages lists the images when they have changed, and from time to time. It
// has a goroutine of its own, since a list of images can take seconds on a busy
// disk and must not delay the runtime's health.
func (m *Manager) watchImages(ctx context.Context) {
	tick := time.NewTicker(imagesEvery)
	defer tick.Stop()
	for {
		images, err := m.listImages(ctx)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		// Only the first of successive failures is logged.
		if err != nil && m.listErr == nil {
			m.cfg.Log.Warn("failed to list images", zap.Error(err))
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
		// Changes during the pause are in the list; the channel keeps a later
		// signal.
		case <-m.images:
			select { // pulls come in groups
			case <-ctx.Done():
				return
			case <-time.After(imagesSettle):
			}
		}
	}
}

// listImages returns only those images that the status shows, so that the others do not stay in
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
