package devicemgr

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podmeta"
)

// List returns the resources of each active pod, sorted by namespace and name.
func (s *PodResources) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	pods := slices.Clone(s.cfg.Pods.ActivePods())
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	resp := &api.ListPodResourcesResponse{}
	for _, pod := range pods {
		resp.PodResources = append(resp.PodResources, s.pod(pod))
	}
	return resp, nil
}

// Get returns the resources of one active pod.
func (s *PodResources) Get(_ context.Context, req *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, pod := range s.cfg.Pods.ActivePods() {
		if pod.Name == req.GetPodName() && pod.Namespace == req.GetPodNamespace() {
			return &api.GetPodResourcesResponse{PodResources: s.pod(pod)}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found, or not active", req.GetPodName(), req.GetPodNamespace())
}

// GetAllocatableResources returns the resources that pods can have, in use or not.
func (s *PodResources) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	resp := &api.AllocatableResourcesResponse{}
	if s.cfg.Devices != nil {
		all := s.cfg.Devices.Devices()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			g := groups{}
			for _, d := range all[name] {
				g.add(d.ID, d.Nodes)
			}
			resp.Devices = append(resp.Devices, g.entries(name)...)
		}
	}
	if s.cfg.CPUs != nil {
		resp.CpuIds = cpuIDs(s.cfg.CPUs.Allocatable())
	}
	if s.cfg.Memory != nil {
		resp.Memory = memory(s.cfg.Memory.Allocatable())
	}
	return resp, nil
}

// pod returns the resources of a pod. As in the kubelet, it omits init containers that end, and
// ephemeral containers.
func (s *PodResources) pod(pod *v1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	if c, ok := s.cfg.CPUs.(PodCPUs); ok {
		out.CpuIds = cpuIDs(c.OfPod(pod.UID))
	}
	if m, ok := s.cfg.Memory.(PodMemory); ok {
		out.Memory = memory(m.BlocksOfPod(pod.UID))
	}
	pooled := len(out.GetMemory()) > 0
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podmeta.IsSidecar(c) {
			out.Containers = append(out.Containers, s.container(pod, c, pooled))
		}
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, s.container(pod, &pod.Spec.Containers[i], pooled))
	}
	return out
}

// container returns the resources of a container. pooled means that its pod has pod-level memory:
// containers without limits of their own share it.
func (s *PodResources) container(pod *v1.Pod, c *v1.Container, pooled bool) *api.ContainerResources {
	name := c.Name
	out := &api.ContainerResources{Name: name}
	if s.cfg.Devices != nil {
		for _, h := range s.cfg.Devices.Holdings(pod.UID, name) {
			g := groups{}
			for _, d := range h.Devices {
				g.add(d.ID, d.Nodes)
			}
			out.Devices = append(out.Devices, g.entries(h.Resource)...)
		}
	}
	if s.cfg.CPUs != nil {
		out.CpuIds = cpuIDs(s.cfg.CPUs.Exclusive(pod.UID, name))
	}
	if s.cfg.Memory != nil && (!pooled || fit.Resources(c.Resources).Bound) {
		out.Memory = memory(s.cfg.Memory.Blocks(pod.UID, name))
	}
	if s.cfg.Claims != nil {
		out.DynamicResources = s.cfg.Claims.Dynamic(pod, name)
	}
	return out
}

// groups has the IDs of devices, by the NUMA nodes near them.
type groups map[numa.NodeSet][]string

func (g groups) add(id string, nodes numa.NodeSet) { g[nodes] = append(g[nodes], id) }

// entries returns one entry for each group; the group without nodes is first.
func (g groups) entries(resource string) []*api.ContainerDevices {
	out := make([]*api.ContainerDevices, 0, len(g))
	for _, nodes := range slices.Sorted(maps.Keys(g)) {
		out = append(out, &api.ContainerDevices{ResourceName: resource, DeviceIds: g[nodes], Topology: place(nodes)})
	}
	return out
}

func place(nodes numa.NodeSet) *api.TopologyInfo {
	if nodes == 0 {
		return nil
	}
	t := &api.TopologyInfo{}
	for id := range nodes.All() {
		t.Nodes = append(t.Nodes, &api.NUMANode{ID: int64(id)})
	}
	return t
}

func cpuIDs(set numa.CPUSet) []int64 {
	var ids []int64
	for id := range set.All() {
		ids = append(ids, int64(id))
	}
	return ids
}

func memory(blocks []MemoryBlock) []*api.ContainerMemory {
	var out []*api.ContainerMemory
	for _, b := range blocks {
		out = append(out, &api.ContainerMemory{MemoryType: b.Type, Size: b.Bytes, Topology: place(b.Nodes)})
	}
	return out
}
