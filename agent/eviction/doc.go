// Package eviction is the part of a node agent that ends pods when the node runs
// short of memory, disk or processes, or when they exceed a limit of local
// storage.
//
//	p, err := eviction.New(eviction.Config{
//		Thresholds: thresholds, Stats: stats.ForEviction(), Reclaim: collection.Reclaimer(),
//		Notify: eviction.KernelNotices("kubepods", v2, thresholds),
//		Hold:   func() bool { return shutdown.ShuttingDown() != nil },
//	})
//	parts := []part.Part{stats, collection, shutdown, p}
//	conditions := p.Pressure() // for the node's status
//	p.Why(&answer)             // for "agent why node"
//
// Package github.com/nodewright/nodewright/eviction decides; this one connects it
// to an agent.
//
// # Hooks
//
// Admit rejects pods while the node is under pressure; where all pods are static
// (Config.Standalone) they wait for its end instead. Revives has a static pod that
// was evicted there begin again: when the node is under no pressure, and after a
// back-off of 10 s that doubles up to 5 min with each eviction and starts anew
// after 10 min without one, as for containers that crash. Explain says which of
// the two the pod waits for. Housekeep forgets pods that are gone. Run watches.
//
// # Ownership
//
// [New] has no side effects. All goroutines and timers end with [Part.Run], and
// evictions under way are given up then. Hooks on the loop read memory alone:
// whatever hangs (figures, reclaiming, the end of a pod) holds up the goroutine
// that watches that resource and nobody else.
//
// # Faults
//
// Nothing is kept over a restart. A pod that was evicted by an agent before this
// one begins again after the first back-off. The back-off counts from when
// Revives was asked about the pod first.
//
// Tier: beta.
package eviction
