package critest

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Workload replaces the script and the memory usage of a container.
type Workload struct {
	// Steps is the script, in place of the container's command and arguments.
	Steps []string
	// Memory is the memory usage in bytes. The default is 1 MiB.
	Memory uint64
}

// SetWorkload sets a function that decides what new containers do, whatever their commands are.
// It is for pods whose commands are not scripts of this package. fn is called with a lock held
// and must not call the runtime. If fn is nil, new containers run their commands.
func (r *Runtime) SetWorkload(fn func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workload = fn
}

// MemoryUsed returns the memory usage of the running containers in bytes, by the UID of their pod.
func (r *Runtime) MemoryUsed() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]uint64{}
	for _, c := range r.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out[c.sandbox.conf.GetMetadata().GetUid()] += c.used()
		}
	}
	return out
}
