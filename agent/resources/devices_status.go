package resources

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmeta"
)

// Report implements part.Reporter: it adds the health of devices to the statuses of regular
// containers and sidecars.
func (p *Devices) Report(pod *v1.Pod, st *v1.PodStatus) {
	for i := range st.ContainerStatuses {
		p.report(pod.UID, &st.ContainerStatuses[i])
	}
	for i := range st.InitContainerStatuses {
		name := st.InitContainerStatuses[i].Name
		if slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && podmeta.IsSidecar(&c) }) {
			p.report(pod.UID, &st.InitContainerStatuses[i])
		}
	}
}

// report sets the health of the container's devices in st. It replaces the entries of the same
// resources in a copy of the list, which may be shared with an earlier status.
func (p *Devices) report(uid types.UID, st *v1.ContainerStatus) {
	health := p.cfg.Manager.Health(uid, st.Name)
	if len(health) == 0 {
		return
	}
	all := slices.Clone(st.AllocatedResourcesStatus)
	for _, h := range health {
		if i := slices.IndexFunc(all, func(s v1.ResourceStatus) bool { return s.Name == h.Name }); i >= 0 {
			all[i] = h
		} else {
			all = append(all, h)
		}
	}
	st.AllocatedResourcesStatus = all
}

// Stopped implements part.Stopper: it releases the pod's devices.
func (p *Devices) Stopped(_ context.Context, pod part.Ref) error {
	p.forget(func(uid types.UID) bool { return uid == pod.UID })
	if !p.before(func(e *earlyDevices) { e.stopped[pod.UID] = true; delete(e.adopted, pod.UID) }) {
		p.cfg.Manager.Release(pod.UID)
	}
	return nil
}

// Sweep implements part.Sweeper.
func (p *Devices) Sweep(_ context.Context, known func(types.UID) bool) error {
	p.forget(func(uid types.UID) bool { return !known(uid) })
	p.cfg.Manager.Retain(known)
	return nil
}

func (p *Devices) forget(over func(types.UID) bool) {
	p.starts.forget(over)
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.deciding {
		if over(uid) {
			delete(p.deciding, uid)
		}
	}
}
