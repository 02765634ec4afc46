// Package cpumgr decides which containers get exclusive CPUs, and which CPUs.
//
// Functions have no side effects: they take a [State] and a pod, and return a decision and a new
// State. They read, write, start and lock nothing. A scheduler can compute whether
// and where a pod fits; an NRI plugin can use [Take] alone; an agent stores the State.
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
// [Policy] is the interface that an agent uses. [Static] and [NewNone] are the
// kubelet's two policies; others can be added.
//
// # State
//
// The CPUs of a pod are a small value, [PodCPUs]: [State.EncodePod] writes it and
// [DecodePod] reads it, one file for each pod. CPUs that init containers leave to
// later containers are derived from it, so that a restart does not lose them. The
// shared pool is not stored: it is the rest.
//
// # Faults
//
// A file that cannot be read affects only its pod. [Rebuild] builds a state from
// files or, without files, from the cpusets of live cgroups. Valid CPUs are kept.
// Invalid ones (offline, reserved or taken, another number than requested, another
// policy) are reported, and their containers share. No state keeps an agent from
// starting. Containers keep their CPUs until they are released or resized: no
// method moves them.
//
// Tier: beta.
package cpumgr
