// Package topology decides on which NUMA nodes the resources of a pod are
// placed together: CPUs, memory and devices that are near each other.
//
// Each resource manager is a [Provider]: a value that says from which nodes it
// can serve a container, and returns itself with that taken. A [Policy] merges
// what they say to one hint and decides whether that is good enough. A
// [Manager] does this for a pod, container by container or as a whole:
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
// State goes in, a decision and the state after it come out. Nothing is taken
// from the state that went in, so a dry run is a decision that is forgotten,
// and a rejected pod leaves nothing behind.
//
// The names of policies, scopes, options and reasons are the kubelet's, and so
// are the answers. The kubelet merges in a time that is exponential in the
// number of NUMA nodes and of resources, and refuses to run with more than 8
// nodes; here 8 nodes take less than a tenth of a millisecond, and 64
// about one: see merger.Merge].
//
// A scheduler or an NRI plugin can bring a policy of its own; merger is there
// for it.
//
// Tier: beta.
package topology
