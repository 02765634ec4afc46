package agent

import (
	"context"
	"slices"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podmeta"
)

// Devices gives pods the devices of plugins. A *devicemgr.Manager is one. Only
// methods with a ctx, and those of an Admission, may wait for a plugin.
type Devices interface {
	DeviceNode
	// Begin looks at what a pod asks for. The Admission takes part in the
	// decision about its CPUs and memory, and is committed after it.
	Begin(ctx context.Context, pod *v1.Pod) (*devicemgr.Admission, error)
	// Attachment is what a container gets with its devices, and PreStart what
	// goes before each start of it.
	Attachment(pod *v1.Pod, container string) (devicemgr.Attachment, error)
	PreStart(ctx context.Context, pod *v1.Pod, container string) error
	// Health is how the devices of a container are (KEP-4680).
	Health(uid types.UID, container string) []v1.ResourceStatus
	// Release gives back all that a pod has.
	Release(uid types.UID)
}

// DeviceNode is the part of Devices that is about the node as a whole.
type DeviceNode interface {
	// Restore is called before Run, with the containers that run by pod.
	Restore(running map[types.UID][]string) error
	Run(ctx context.Context) error
	// Retain releases the pods that nothing knows.
	Retain(known func(types.UID) bool)
	// Subscribe tells of devices that came, went, or changed their health.
	Subscribe(fn func(devicemgr.Change)) (cancel func())
	Capacity() map[v1.ResourceName]devicemgr.Count
	Holdings(uid types.UID, container string) []devicemgr.Holding
}

// reasonDevicesAway is why a pod waits whose device plugin is not there (yet).
const reasonDevicesAway = "DevicesNotReady"

// untilListed waits until it is known which containers run; false if ctx ends
// before.
func (a *Agent) untilListed(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-a.pleg.Listed():
		return true
	}
}

// runDevices runs the devices until ctx ends, from the moment on when it is known
// which containers run: they keep what they have.
func (a *Agent) runDevices(ctx context.Context) error {
	d := a.cfg.Devices
	if d == nil {
		return nil
	}
	if !a.untilListed(ctx) {
		return nil
	}
	if err := d.Restore(a.runningContainers()); err != nil {
		a.log.Error("which pods have devices is not known in full", zap.Error(err))
	}
	close(a.decisions.restored)
	defer d.Subscribe(a.devicesChanged)()
	return d.Run(ctx)
}

// runningContainers are the names of those that may run, by pod.
func (a *Agent) runningContainers() map[types.UID][]string {
	out := map[types.UID][]string{}
	for _, l := range a.pleg.Pods() {
		obs, err := a.pleg.Get(l.UID)
		if err != nil && obs == nil {
			a.log.Error("it is not known what runs of a pod", zap.String("uid", string(l.UID)), zap.Error(err))
			continue
		}
		for i := range obs.Containers {
			if c := &obs.Containers[i]; c.State == observed.Running || c.State == observed.Unknown {
				out[l.UID] = append(out[l.UID], c.Name)
			}
		}
	}
	return out
}

// restoredDevices is closed when that has been, and it is known who has which
// devices.
func (a *Agent) restoredDevices(ctx context.Context, placement <-chan struct{}) <-chan struct{} {
	if a.cfg.Devices == nil {
		return placement
	}
	done := make(chan struct{})
	a.sweeps.Go(func() {
		for _, c := range []<-chan struct{}{placement, a.decisions.restored} {
			select {
			case <-ctx.Done():
				return
			case <-c:
			}
		}
		close(done)
	})
	return done
}

// devicesChanged has those pods looked at whose devices changed their health,
// and those admitted or started that waited for a plugin.
func (a *Agent) devicesChanged(c devicemgr.Change) {
	for _, uid := range c.Pods {
		a.workers.Resync(uid)
	}
	if len(c.Resources) > 0 {
		a.prepares.changed(func(uid types.UID) {
			a.runtime.Retry(uid)
			a.workers.Resync(uid)
		})
		a.decisions.change()
	}
}

// keepDevices has what is known of the devices of a pod that runs matched with
// its spec. It keeps what it has, and nothing is asked of a plugin.
func (a *Agent) keepDevices(pod *v1.Pod) {
	if a.cfg.Devices != nil {
		_, _ = a.cfg.Devices.Begin(a.decisions.ctx, pod)
	}
}

// releaseDevices takes back the devices of a pod of which nothing runs.
func (a *Agent) releaseDevices(uid types.UID) {
	if a.cfg.Devices != nil {
		a.prepares.forget(uid)
		a.cfg.Devices.Release(uid)
	}
}

// sweepDevices takes back the devices of pods that nothing knows.
func (a *Agent) sweepDevices(known map[types.UID]bool) {
	if a.cfg.Devices != nil {
		a.cfg.Devices.Retain(func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
	}
}

// withDevices adds how the devices of containers are to a status. Regular
// containers and sidecars show it.
func (a *Agent) withDevices(pod *v1.Pod, st v1.PodStatus) v1.PodStatus {
	if a.cfg.Devices == nil {
		return st
	}
	add := func(list []v1.ContainerStatus, shows func(name string) bool) {
		for i := range list {
			if !shows(list[i].Name) {
				continue
			}
			for _, h := range a.cfg.Devices.Health(pod.UID, list[i].Name) {
				all := list[i].AllocatedResourcesStatus
				if j := slices.IndexFunc(all, func(s v1.ResourceStatus) bool { return s.Name == h.Name }); j >= 0 {
					all[j] = h
				} else {
					list[i].AllocatedResourcesStatus = append(all, h)
				}
			}
		}
	}
	add(st.ContainerStatuses, func(string) bool { return true })
	add(st.InitContainerStatuses, func(name string) bool {
		i := slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
		return i >= 0 && podmeta.IsSidecar(&pod.Spec.InitContainers[i])
	})
	return st
}

func count(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// Resources are what the node has and what pods can have of it: what it was
// configured with, and the devices that plugins offer now.
func (a *Agent) Resources() (capacity, allocatable v1.ResourceList) {
	capacity, allocatable = a.cfg.Node.Capacity.DeepCopy(), a.cfg.Node.Allocatable.DeepCopy()
	if a.cfg.Devices == nil {
		return capacity, allocatable
	}
	for name, c := range a.cfg.Devices.Capacity() {
		if capacity == nil {
			capacity = v1.ResourceList{}
		}
		if allocatable == nil {
			allocatable = v1.ResourceList{}
		}
		capacity[name], allocatable[name] = count(c.Capacity), count(c.Allocatable)
	}
	return capacity, allocatable
}
