// Package fit is a node's admission of pods as pure functions: whether a pod may run
// beside others, and where it would be placed, which CPUs, which NUMA nodes' memory and
// devices each of its containers would get; and why not, in the kubelet's words.
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
// [Admit] is all of it. [Node.Admit] is what can be said without a machine: requests
// against what is allocatable, selectors, taints, host ports, sysctls and so on. [Fit] is
// placement alone, which joins the packages cpumgr, memmgr and topology for pods as
// Kubernetes has them:
//
//	result, err := fit.Fit(placement, pod)
//	placement.State = result.State // the pod is there
//
// A Placement is a value. Nothing is read, written, started or locked, and nothing that
// is passed in changes, so any number of goroutines may ask, and a scheduler may keep a
// Placement for each machine it knows. An agent keeps one, and makes its decisions true.
//
// # Faults
//
// A pod that does not fit has taken nothing. [Placement.Adopt] makes a state of what is
// known of running containers: what does not fit together is told and shares; there is
// nothing with which it would fail.
//
// Tier: stable.
package fit
