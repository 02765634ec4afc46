// Package cpumgr decides which containers get CPUs of their own, and which.
//
// It is arithmetic, without an agent: a [State] and a pod go in, a decision and a
// new State come out. Nothing is read, written, started or locked. A scheduler asks
// it whether and where a pod would fit; an NRI plugin takes [Take] alone; an agent
// keeps the State and sets cpusets.
//
//	static, err := cpumgr.NewStatic(machine, cpumgr.Reservation{MilliCPU: 500}, cpumgr.Options{})
//	if err != nil {
//		return err
//	}
//	state := static.Start()
//	hints := static.Hints(state, pod, 0)                      // for the topology manager
//	next, err := static.Allocate(state, pod, 0, numa.Hint{})  // a dry run, if next is dropped
//	cpus := next.Wanted(pod.UID, pod.Containers[0].Name)
//	for _, step := range cpumgr.Diff(state, next) { ... }     // cpusets to set, in this order
//
// [Policy] is what it does for an agent; [Static] and [NewNone] are the kubelet's
// two, and who wants another brings it.
//
// # State
//
// What is known of a pod is a small value, [PodCPUs]: [State.EncodePod] writes it,
// [DecodePod] reads it, one file for each pod. CPUs that init containers leave to
// later containers are found from it too, so that they are not forgotten over a
// restart. The shared pool is written nowhere: it is what is left.
//
// # Faults
//
// A file that cannot be read is that pod's matter. [Rebuild] makes a state out of
// files, or of the cpusets of live cgroups where there are none: what fits keeps
// just the CPUs it has, and what does not (offline, reserved or taken CPUs, another
// number than asked for, another policy) is reported and shares. There is no state
// with which an agent could not start. Containers that have CPUs keep them until
// they are released or resized: no method moves them.
//
// Tier: beta.
package cpumgr
