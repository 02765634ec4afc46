// Package threshold holds the vocabulary of node-pressure eviction: the signals of a
// node, the thresholds set for them, and the grammar in which the kubelet's
// configuration writes them.
//
//	list, err := threshold.Parse(threshold.Text{
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
// Everything in it is pure: there is no clock, no I/O and no goroutine. A
// [Threshold] is comparable, and can be the key of a map.
//
// Tier: beta.
package threshold
