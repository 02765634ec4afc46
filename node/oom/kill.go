package oom

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kill is one process that the kernel's OOM killer killed.
type Kill struct {
	// At is the time at which this package detected the kill.
	At time.Time

	// PID is the process ID in the node's PID namespace, or 0 if it is not known. Process is the
	// name of the process, of at most 15 bytes, which the process chose itself.
	PID     int
	Process string
	// AnonRSS, FileRSS and ShmemRSS are its resident memory in bytes.
	AnonRSS, FileRSS, ShmemRSS uint64

	// Cgroup is the process's cgroup. Limit is the cgroup whose limit was hit. Both are paths
	// below the root of the hierarchy, or "" if they are not known. Limit is also "" if the node
	// was out of memory.
	Cgroup, Limit string
	// Node reports that no limit was hit: the node was out of memory, or had none
	// that the process may use (cpuset, memory policy).
	Node bool

	// PodUID and ContainerID are "" for a process outside pods.
	PodUID      types.UID
	ContainerID string

	// Count is the number of processes that this Kill stands for: 1, or the growth
	// of a counter.
	Count uint64
}

// reasonSystemOOM is the reason of the kubelet's event on the node.
const reasonSystemOOM = "SystemOOM"

// NodeEvent returns the kubelet's Warning event for the node. ok is true if the
// node was out of memory, or the victim ran outside of any cgroup; a container that
// hit its own limit is no event of the node.
func (k *Kill) NodeEvent() (reason, message string, ok bool) {
	if !k.Node && k.Cgroup != "/" {
		return "", "", false
	}
	if k.PID == 0 || k.Process == "" {
		return reasonSystemOOM, "System OOM encountered", true
	}
	return reasonSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID), true
}
