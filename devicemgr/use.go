package devicemgr

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Holdings are the devices that a container has, by resource in the order of their
// names. It is nil for a container without any. The holdings are shared: do not
// change them.
func (m *Manager) Holdings(uid types.UID, container string) []Holding {
	m.mu.Lock()
	r := m.pods[uid]
	// The record is never changed: the lock is needed for the map alone.
	m.mu.Unlock()
	var out []Holding
	if r != nil {
		for _, h := range r.Held {
			if h.Container == container {
				out = append(out, h)
			}
		}
	}
	return out
}

// Attachment is what the devices of a container add to it. Where two resources want
// different things in one place, the one whose name comes first has it, which is
// logged. The error reports that the container asks for devices that it has not
// got: it must not start. That error is [ErrNotAllocated]. It neither blocks nor
// asks a plugin.
func (m *Manager) Attachment(pod *v1.Pod, container string) (Attachment, error) {
	if err := m.missing(pod, container); err != nil {
		return Attachment{}, err
	}
	var all Attachment
	for _, h := range m.Holdings(pod.UID, container) {
		for _, what := range all.merge(h.Attachment) {
			m.cfg.Log.Warn("two plugins want different things for a container", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name),
				zap.String("container", container), zap.String("what", what), zap.String("ignored", h.Resource))
		}
	}
	return all, nil
}

// missing reports a device that a container asks for and has not got. The error is
// ErrNotAllocated. Resources that no plugin ever offered are somebody else's.
func (m *Manager) missing(pod *v1.Pod, container string) error {
	for _, s := range m.slotsOf(pod) {
		if s.name != container {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		// Names of containers are unique in a pod, so that the lock is taken once.
		for _, w := range s.wants {
			if _, has := m.pods[pod.UID].holding(container, w.resource); !has && m.resources[w.resource] != nil {
				return fmt.Errorf("container %s of pod %s/%s asks for %s and has not been given any: %w",
					container, pod.Namespace, pod.Name, w.resource, ErrNotAllocated)
			}
		}
	}
	return nil
}

// ErrNotAllocated means that a container has not got the devices it asks for:
// its pod was not admitted, or what it had is not known.
var ErrNotAllocated = errors.New("no devices allocated")

// PreStart is called before each start of a container, which does not run then.
// Plugins that want to hear of it do; one that is away and wanted to is waited for
// with a [*NotYetError]: the start should be tried again. A container whose devices
// were not known gets new ones. Errors are those of Admit besides, and a
// [*PluginError]. It blocks for plugins, and for the store where it allocates.
func (m *Manager) PreStart(ctx context.Context, pod *v1.Pod, container string) error {
	if err := m.missing(pod, container); err != nil {
		// The container does not run: whatever devices it had, it has no more, so
		// that they no longer hide others.
		m.stopped(pod, container)
		if err := m.Admit(ctx, pod); err != nil {
			return err
		}
	}
	for _, h := range m.Holdings(pod.UID, container) {
		if err := m.preStart(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// stopped notes that a container does not run (any more). If that was the last of a
// blind pod's containers with devices, the resources can be given out again.
func (m *Manager) stopped(pod *v1.Pod, container string) {
	slots := m.slotsOf(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	// look makes the set of unknown containers if it is not known yet; the second
	// call draws the conclusion.
	m.look(pod, slots)
	b := m.blind[pod.UID]
	if b == nil {
		return
	}
	b.unknown[container] = false
	m.look(pod, slots)
	if len(b.resources) == 0 {
		delete(m.blind, pod.UID)
	}
}

// preStart has the plugin of one holding prepare the devices, if it wants to.
func (m *Manager) preStart(ctx context.Context, h Holding) error {
	m.mu.Lock()
	r := m.resources[h.Resource]
	s := r.session
	wanted := h.PreStart
	if s != nil && s.listed {
		wanted = s.options.PreStart // a new version may not
		// A start without the call could run on a device in the state that its last
		// user left.
	} else if wanted {
		why, until := r.why, r.lostAt.Add(m.cfg.Grace)
		if s != nil && !r.lost { // a takeover
			why, until = "its new plugin has not listed any yet", s.since.Add(m.cfg.Timeout)
		}
		err := &NotYetError{Resource: h.Resource, Why: "a container that restarts: " + why, Until: until}
		m.mu.Unlock()
		return err
	}
	m.mu.Unlock()
	if !wanted {
		return nil
	}
	call, done := context.WithTimeout(ctx, m.cfg.Timeout)
	defer done()
	if err := s.plugin.PreStart(call, h.ids()); err != nil {
		return &PluginError{h.Resource, CallPreStart, err}
	}
	return nil
}

// Health is how the devices of a container are, as its status shows it (KEP-4680).
// What a plugin that is away would say is unknown, and so is what became of a
// device that it no longer lists. The list is in the order of Holdings, and the
// caller's.
func (m *Manager) Health(uid types.UID, container string) []v1.ResourceStatus {
	var out []v1.ResourceStatus
	for _, h := range m.Holdings(uid, container) {
		st := v1.ResourceStatus{Name: v1.ResourceName(h.Resource)}
		m.mu.Lock()
		r := m.resources[h.Resource]
		list, lost := r.devices, r.lost
		m.mu.Unlock()
		for _, held := range h.Devices {
			// The kubelet shows a device that is no longer listed as healthy, which
			// misleads.
			health := v1.ResourceHealthStatusUnknown
			if d, ok := find(list, held.ID); ok && !lost {
				health = v1.ResourceHealthStatusUnhealthy
				if d.Healthy {
					health = v1.ResourceHealthStatusHealthy
				}
			}
			st.Resources = append(st.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(held.ID), Health: health})
		}
		out = append(out, st)
	}
	return out
}
