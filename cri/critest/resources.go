package critest

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// memoryUsed is the default memory usage of a container, in bytes.
const memoryUsed = 1 << 20

// UpdateContainerResources changes the resources of a container. A 0 leaves the value unchanged.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, to *runtimeapi.ContainerResources) error {
	leave, err := r.enter(ctx, "UpdateContainerResources", id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	conf := proto.CloneOf(c.conf)
	if conf.Linux == nil {
		conf.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if conf.Linux.Resources == nil {
		conf.Linux.Resources = &runtimeapi.LinuxContainerResources{}
	}
	proto.Merge(conf.Linux.Resources, to.GetLinux())
	c.conf = conf
	return leave()
}

// ContainerStats returns a container's memory usage.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	leave, err := r.enter(ctx, "ContainerStats", id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	switch {
	case c == nil:
		return nil, notFound("container", id)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return nil, status.Errorf(codes.Unknown, "container %q does not run", id)
	}
	used := c.used()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: id, Metadata: c.conf.GetMetadata(), Labels: c.conf.GetLabels(), Annotations: c.conf.GetAnnotations()},
		Memory: &runtimeapi.MemoryUsage{
			WorkingSetBytes: &runtimeapi.UInt64Value{Value: used}, UsageBytes: &runtimeapi.UInt64Value{Value: used},
		},
	}, leave()
}

// used returns the memory usage of a container in bytes. Runtime.mu is held.
func (c *container) used() uint64 { return cmp.Or(c.memory, memoryUsed) }

// SetMemoryUsed sets the bytes of memory that a container uses from now on.
func (r *Runtime) SetMemoryUsed(id string, bytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.memory = bytes
	}
}
