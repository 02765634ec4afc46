package critest

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Workload is what a container does.
type Workload struct {
	// Steps are the script in place of the container's command and arguments.
	Steps []string
	// Memory is how many bytes it uses; 1 MiB.
	Memory uint64
}

// SetWorkload has fn decide what the containers do that are made from now on, whatever
// their commands are: for pods that were not written for this runtime. fn is called
// with a lock held and must not call the runtime. With nil containers run their
// commands again.
func (r *Runtime) SetWorkload(fn func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workload = fn
}

// MemoryUsed is how many bytes the containers that run use, by the UID of their pod.
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
