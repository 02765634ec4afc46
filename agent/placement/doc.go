// Package placement gives containers CPUs and memory of their own, and keeps
// all other containers off them. It is a [part.Part] of a node agent.
//
// Package fit decides; this package carries the decision out, in this order: the
// decision itself (Reserve), its checkpoint and the departure of other containers
// from the CPUs (Prepare), the start of the owner. A container is created on the
// CPUs that are its own at that moment (BeforeCreate), since others may have been
// given some of the shared ones after its configuration was compiled.
//
//	p, err := placement.New(placement.Config{
//		Fit:     fit.Config{Machine: machine, CPUPolicy: fit.CPUStatic, ...},
//		Runtime: runtime, // a *cri.Client
//		Store:   part.OpenStore(dir, log),
//	})
//
// Reservations of earlier parts that are [part.Aligned] take part in the decision
// on NUMA nodes, so the part belongs after those of devices. What containers have
// is shown by [Part.CPUs], [Part.Memory] and [Part.OwnCPUs].
//
// # Restarts
//
// Restore learns who has what from the checkpoints; where these do not say, the
// containers that run are authoritative. A container that runs keeps its CPUs
// whatever the checkpoints and the policy say, and none is touched that no source
// has named yet. Until Restore is done no pod is admitted: pods wait, with the
// reason PlacementNotRestored.
//
// A kubelet's cpu_manager_state is newer than the checkpoints if the kubelet wrote it
// last. Containers that do not run have what it says; Run keeps it up to date.
//
// # Ownership
//
// New has no side effects, and the part has no goroutine but that of Run. Decisions are in
// memory, under a lock that is never held for the store, the runtime or another
// part. Checkpoints are written in Prepare, and removed in Stopped and Sweep.
//
// # Faults
//
// A cpuset that the runtime does not change is tried again by each later call of
// Prepare, Stopped or Sweep; the owner of CPUs does not start while others are on
// them. A checkpoint that cannot be written keeps its pod from starting. A store
// that hangs holds up the pods that need a checkpoint, and Restore.
//
// Tier: beta.
package placement
