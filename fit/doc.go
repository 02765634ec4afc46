// Package fit says where a pod would be placed on a machine: which CPUs and
// which NUMA nodes' memory each of its containers would get, and why not if it
// cannot. It joins the packages cpumgr, memmgr and topology for pods as
// Kubernetes has them.
//
//	node, err := fit.New(fit.Config{
//		Machine: numa.Uniform(2, 1, 32, 2, 256<<30),
//		CPUPolicy: "static", ReservedCPUs: cpumgr.Reservation{MilliCPU: 1000},
//		TopologyPolicy: topology.NameSingleNUMANode,
//	})
//	...
//	result, err := fit.Fit(node, pod)  // a dry run
//	node.State = result.State          // the pod is there
//
// A [Node] is a value. Nothing is read, written, started or locked, and nothing
// that is passed in changes, so any number of goroutines may ask, and a
// scheduler may keep a Node for each machine it knows. An agent keeps one, and
// makes its decisions true.
//
// # Faults
//
// A pod that does not fit has taken nothing. [Node.Adopt] makes a state of what
// is known of running containers: what does not fit together is told and shares;
// there is nothing with which it would fail.
package fit
