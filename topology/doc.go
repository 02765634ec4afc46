// Package topology decides on which NUMA nodes the resources of a pod are placed
// together, so that its CPUs, memory and devices are near each other.
//
// Each resource manager is a [Provider]: a value that returns the nodes from which
// it can serve a container, and a copy of itself with the resources taken. A
// [Policy] merges the hints of all providers to one hint and decides whether to
// admit. A [Manager] does this for a pod, container by container or as a whole:
//
//	policy, err := topology.NewPolicy(topology.NameRestricted, machine, topology.Options{})
//	...
//	m, err := topology.New(topology.Config{Policy: policy, Scope: topology.PodScope})
//	...
//	decision, err := m.Admit(pod, []topology.Provider{devices, cpus, memory})
//	if err != nil {
//		return err // a *Rejection: reason, message, and what was in the way
//	}
//	devices, cpus, memory = decision.Providers[0], ...
//
// Decisions are pure: the result is a decision and new provider values. The given
// providers do not change, so that a dry run is a decision that is dropped, and a
// rejected pod has taken nothing.
//
// The names of policies, scopes, options and reasons are the kubelet's, and so are
// the results. The kubelet merges hints in a time that is exponential in the number
// of NUMA nodes and resources, and refuses to run with more than 8 nodes; here
// merging takes less than a tenth of a millisecond for 8 nodes and about one for
// 64.
//
// A scheduler or an NRI plugin can use a [Policy] of its own.
//
// Tier: beta.
package topology
