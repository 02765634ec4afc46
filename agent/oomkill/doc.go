// Package oomkill reports the kernel's OOM kills as events: of the pod that lost a
// process, and of the node if that had no memory left.
//
//	p, err := oomkill.New(oomkill.Config{
//		Fallback: oom.NewCounters("/sys/fs/cgroup", "/kubepods"), // cgroup v2
//	})
//
// Package node/oom finds the kills, in the kernel's log or by the counters of
// cgroup v2; this one finds the pod and the container to a kill.
//
// # Hooks
//
// [Part] is a part.Runner. A kill becomes the event OOMKilling of its pod (the
// reason that node-problem-detector uses), the kubelet's SystemOOM of the node,
// a line in the log, and a look at the pod by its worker.
//
// # Ownership
//
// [Part.Run] owns every goroutine. Kills are taken one after the other, while
// later ones wait in the kernel's log.
//
// # Faults
//
// The kernel may kill a container before anybody has seen it. The runtime is
// asked about it once, for at most 2 s; after that the event names the pod
// alone. For logs that fail see node/oom.
//
// Tier: beta.
package oomkill
