package oom

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kill is one process that the kernel killed because memory ran out.
type Kill struct {
	// At is when this package learned of it.
	At time.Time

	// PID is in the node's PID namespace; 0 if not known. Process is its
	// name, of at most 15 bytes, which the process chose itself.
	PID     int
	Process string
	// AnonRSS, FileRSS and ShmemRSS are what it had in memory, in bytes.
	AnonRSS, FileRSS, ShmemRSS uint64

	// Cgroup is the process's cgroup, Limit the one whose limit was hit, both
	// as paths below the root of the hierarchy. "" is not known; Limit is ""
	// too when the node itself had no memory left.
	Cgroup, Limit string
	// Node reports that no limit was hit: the node had no memory left, or none
	// that the process may use (cpuset, memory policy).
	Node bool

	// PodUID and ContainerID are "" for what runs in no pod.
	PodUID      types.UID
	ContainerID string

	// Count is how many processes this stands for: 1, or the growth of a
	// counter, which has no names.
	Count uint64
}

// reasonSystemOOM is the reason of the kubelet's event on the node.
const reasonSystemOOM = "SystemOOM"

// NodeEvent is the Warning event that the kubelet has for the node. There is
// one (ok) if the node had no memory left, or the victim ran outside of any
// cgroup; a container that hit its own limit is no matter of the node.
func (k *Kill) NodeEvent() (reason, message string, ok bool) {
	if !k.Node && k.Cgroup != "/" {
		return "", "", false
	}
	if k.PID == 0 || k.Process == "" {
		return reasonSystemOOM, "System OOM encountered", true
	}
	return reasonSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID), true
}
