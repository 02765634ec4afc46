package critest

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Workload replaces the script and the memory usage of a container.
type Workload struct {
	// Steps is the script, in place of the container's command and arguments.
	Steps []string
	// Memory is the memory usage in bytes. Default: 1 MiB.
	Memory uint64
}

// SetWorkload makes fn decide what containers do that are made from now on, whatever their commands
// are. It is for pods whose commands are not scripts of this package. fn is called with a lock held
// and must not call the runtime. With nil containers run their commands again.
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
