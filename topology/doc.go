// Package topology decides on which NUMA nodes the resources of a pod are placed together, so
// that its CPUs, memory and devices are near each other.
//
// Each resource manager is a [Provider]: a value that returns the sets of nodes from which it can
// serve a container, and a copy of itself with the resources taken. A [Policy] merges the hints
// of all providers to one hint and decides whether to admit the pod. A [Manager] does this
// container by container, or for the pod as a whole:
//
//	policy, err := topology.NewPolicy(topology.NameRestricted, machine, topology.Options{})
//	...
//	m, err := topology.New(topology.Config{Policy: policy, Scope: topology.PodScope})
//	...
//	decision, err := m.Admit(pod, []topology.Provider{devices, cpus, memory})
//	if err != nil {
//		return err // a *Rejection: reason, message, and the resources in conflict
//	}
//	devices, cpus, memory = decision.Providers[0], ...
//
// Admit has no side effects: it returns a decision and new provider values. The given providers
// do not change. To try a placement, drop the decision; a rejected pod has taken nothing.
//
// The names of policies, scopes, options and reasons are the kubelet's, and so are the results.
// The time that the kubelet needs to merge hints grows exponentially with the number of NUMA
// nodes and resources, and it refuses to run with more than 8 nodes. Here, merging takes less
// than a tenth of a millisecond for 8 nodes and about one millisecond for 64.
//
// A scheduler or an NRI plugin can use a [Policy] by itself.
//
// Tier: beta.
package topology
