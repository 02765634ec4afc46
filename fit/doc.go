// Package fit decides about the admission of pods to a node, with functions that have no side
// effects: whether a pod may run beside others, and which CPUs, memory nodes and devices each of
// its containers would get; or why it may not run, in the kubelet's words.
//
//	placement, err := fit.NewPlacement(fit.PlacementConfig{
//		Machine: machine, // numa.Uniform(2, 1, 32, 2, 256<<30)
//		CPUPolicy: "static", ReservedCPUs: cpumgr.Reservation{MilliCPU: 1000},
//		TopologyPolicy: topology.NameSingleNUMANode,
//	})
//	...
//	node := &fit.Node{
//		Name: "edge-1", Labels: labels, Allocatable: allocatable, Taints: taints,
//		Placement: &placement, Machine: machine, Devices: devices,
//	}
//	result, rejection := fit.Admit(node, pod, others) // a dry run
//
// [Admit] makes all checks. [Node.Admit] makes those that need no hardware: requests against
// allocatable resources, selectors, taints, host ports, sysctls and so on. [Fit] only places a
// pod, with the packages cpumgr, memmgr and topology:
//
//	result, err := fit.Fit(placement, pod)
//	placement.State = result.State // the pod is placed
//
// A Placement is a value. No function does I/O, locks, or modifies its arguments; all are safe
// for concurrent use. A scheduler may have a Placement for each machine; an agent has one, and
// applies its results.
//
// # Faults
//
// A pod that does not fit has taken nothing. [Placement.Adopt] computes a state from running
// containers. It never fails: contradictions are returned as errors, and the containers concerned
// use the shared CPUs.
//
// Tier: stable.
package fit
