// Package rank orders pods as a node under pressure evicts them, and finds those that
// exceed their limits of local storage. A scheduler or a simulator can ask it what a
// node would do:
//
//	order := rank.Sort(rank.Rules{}, threshold.Memory, []rank.Candidate{
//		{Pod: web, Usage: &rank.Usage{Memory: 900 << 20}},
//		{Pod: db, Usage: &rank.Usage{Memory: 3 << 30}},
//	})
//	first := order[0] // would be evicted first
//
// The comparators are the kubelet's, in its order:
//
//	memory         above its request; lower priority; further above its request
//	disk, inodes   above its request; lower priority; further above its request
//	pid            lower priority; more processes
//
// A pod without figures comes before those with, wherever figures are
// compared; a figure that is missing counts as 0. Pods that are equal in all
// of it keep their order, where the kubelet's changes from call to call.
//
// Everything is pure, costs one look at each pod and one sort, and changes
// nothing that is handed in. Requests are in whole units: what a container
// asks for is rounded up to a byte.
//
// Tier: beta.
package rank
