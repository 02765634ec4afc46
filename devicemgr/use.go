package devicemgr

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Holdings returns the devices that a container has, sorted by resource. It returns nil if the
// container has none. They are shared; do not modify them.
func (m *Manager) Holdings(uid types.UID, container string) []Holding {
	m.mu.Lock()
	r := m.pods[uid]
	// A record is never modified, so the lock is needed only for the map.
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

// Attachment returns the additions of a container's devices. If two resources conflict, the one
// whose name sorts first wins, and the conflict is logged. If the container does not have the
// devices that it requests, the error is [ErrNotAllocated] and the container must not start.
// Attachment neither blocks nor calls a plugin.
func (m *Manager) Attachment(pod *v1.Pod, container string) (Attachment, error) {
	if err := m.missing(pod, container); err != nil {
		return Attachment{}, err
	}
	var all Attachment
	for _, h := range m.Holdings(pod.UID, container) {
		for _, what := range all.merge(h.Attachment) {
			m.cfg.Log.Warn("found conflicting devices of two plugins for a container", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name),
				zap.String("container", container), zap.String("what", what), zap.String("ignored", h.Resource))
		}
	}
	return all, nil
}

// missing returns ErrNotAllocated if a container does not have a device that it requests.
// Resources that no plugin has ever offered are ignored.
func (m *Manager) missing(pod *v1.Pod, container string) error {
	for _, s := range m.slotsOf(pod) {
		if s.name != container {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		// Names of containers are unique in a pod, so the lock is taken once.
		for _, w := range s.wants {
			if _, has := m.pods[pod.UID].holding(container, w.resource); !has && m.resources[w.resource] != nil {
				return fmt.Errorf("container %s of pod %s/%s requests %s, but has none: %w",
					container, pod.Namespace, pod.Name, w.resource, ErrNotAllocated)
			}
		}
	}
	return nil
}

// ErrNotAllocated means that a container does not have the devices that it requests: its pod was
// not admitted, or its devices are not known.
var ErrNotAllocated = errors.New("no devices are allocated")

// PreStart calls the plugins before each start of a container; the container must not be running.
// Only plugins with the option PreStart are called. If such a plugin is away, the error is a
// [*NotYetError]: try the start again. A container whose devices were not known gets new ones.
// Other errors are those of Admit, and a [*PluginError]. It blocks on plugins, and on the store
// if it allocates.
func (m *Manager) PreStart(ctx context.Context, pod *v1.Pod, container string) error {
	if err := m.missing(pod, container); err != nil {
		// The container is not running, so its unknown devices are free: they no longer hide
		// others.
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

// stopped records that a container is not running. If it was the last container with unknown
// devices of a pod, the pod's resources can be allocated again.
func (m *Manager) stopped(pod *v1.Pod, container string) {
	slots := m.slotsOf(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	// The first call computes the affected containers, which the second one uses.
	m.limitDamaged(pod, slots)
	b := m.damaged[pod.UID]
	if b == nil {
		return
	}
	b.unknown[container] = false
	m.limitDamaged(pod, slots)
	if len(b.resources) == 0 {
		delete(m.damaged, pod.UID)
	}
}

// preStart calls the plugin of one holding to prepare the devices, if it has the option PreStart.
func (m *Manager) preStart(ctx context.Context, h Holding) error {
	m.mu.Lock()
	r := m.resources[h.Resource]
	s := r.session
	wanted := h.PreStart
	if s != nil && s.listed {
		wanted = s.options.PreStart // a new version may not have it
		// Without the call, the container could start with a device in the state in which its
		// last user left it.
	} else if wanted {
		why, until := r.why, r.lostAt.Add(grace)
		if s != nil && !r.lost { // the plugin was replaced
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

// Health returns the health of a container's devices for its status (KEP-4680). It is unknown
// while the plugin is away, and for devices that the plugin no longer lists. The list has the
// order of Holdings; the caller may modify it.
func (m *Manager) Health(uid types.UID, container string) []v1.ResourceStatus {
	var out []v1.ResourceStatus
	for _, h := range m.Holdings(uid, container) {
		st := v1.ResourceStatus{Name: v1.ResourceName(h.Resource)}
		m.mu.Lock()
		r := m.resources[h.Resource]
		list, lost := r.devices, r.lost
		m.mu.Unlock()
		for _, held := range h.Devices {
			// The kubelet shows a device that is no longer listed as healthy, which is
			// misleading.
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
