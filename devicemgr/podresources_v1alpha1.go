package devicemgr

import (
	"context"

	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// oldest serves clients of v1alpha1: it returns only the devices of containers.
type oldest struct {
	v1alpha1.UnsafePodResourcesListerServer

	s *PodResources
}

// List returns one entry for each resource of a container, for all NUMA nodes together.
func (o oldest) List(ctx context.Context, _ *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	all, err := o.s.List(ctx, &api.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, p := range all.GetPodResources() {
		pod := &v1alpha1.PodResources{Name: p.GetName(), Namespace: p.GetNamespace()}
		for _, c := range p.GetContainers() {
			container := &v1alpha1.ContainerResources{Name: c.GetName()}
			at := map[string]*v1alpha1.ContainerDevices{}
			for _, d := range c.GetDevices() {
				name := d.GetResourceName()
				if at[name] == nil {
					at[name] = &v1alpha1.ContainerDevices{ResourceName: name}
					container.Devices = append(container.Devices, at[name])
				}
				at[name].DeviceIds = append(at[name].DeviceIds, d.GetDeviceIds()...)
			}
			pod.Containers = append(pod.Containers, container)
		}
		out.PodResources = append(out.PodResources, pod)
	}
	return out, nil
}
