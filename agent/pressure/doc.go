// Package pressure has the parts of a node agent that deal with a machine that fills up: what
// is used, what is removed as garbage, and which pods end when memory, disk or room for a critical
// pod is short. Each part is a [part.Part] of its own: an agent without one has neither its behavior
// nor its weight.
//
//	stats, err := pressure.NewStats(pressure.StatsConfig{...})
//	collection, err := pressure.NewCollection(pressure.CollectionConfig{...})
//	evict, err := pressure.NewEviction(pressure.EvictionConfig{Stats: stats.ForEviction(), Reclaim: collection.Reclaimer(), ...})
//
// The parts:
//
//   - [Stats]: what the node and its pods use
//   - [Collection]: images, dead containers and logs that are removed
//   - [Eviction]: pods that end under node pressure
//   - [OOMKills]: events of the kernel's OOM kills
//   - [Preemption]: pods that end for a critical one
//
// The collectors work without an agent, too: see packages gc and gc/crigc.
//
// Tier: beta.
package pressure
