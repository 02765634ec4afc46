// Package rank has the decisions of node-pressure eviction as pure functions: the signals of a
// node and the thresholds set for them ([Parse], [Threshold]), the order in which a node under
// pressure evicts pods ([Sort]), and which pods exceed their limits of local storage
// ([Violated]). It needs v1.Pod alone; there is no clock, no I/O and no goroutine, and nothing
// that is handed in is changed.
//
// # Order of pods
//
// A scheduler or a simulator can ask what a node would do:
//
//	order := rank.Sort(rank.Rules{}, rank.SignalMemory, []rank.Candidate{
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
//	any other      lower priority; more [Usage].Own
//
// A pod without figures comes before pods with figures, wherever figures are compared; a missing
// figure counts as 0. Equal pods keep their order; in the kubelet their order is random.
//
// Requests are rounded up to whole units.
//
// # Signals and thresholds
//
// The vocabulary is the kubelet's, and so is the grammar in which its configuration
// writes thresholds:
//
//	list, err := rank.Parse(rank.Text{
//		Hard:      map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
//		Soft:      map[string]string{"memory.available": "500Mi"},
//		SoftGrace: map[string]string{"memory.available": "1m30s"},
//	})
//	for _, t := range list {
//		if obs, ok := observed[t.Signal]; ok && t.Met(obs) {
//			...
//		}
//	}
//
// A [Threshold] is comparable, and can be the key of a map. The error of Parse names every
// mistake.
//
// Tier: beta.
package rank
