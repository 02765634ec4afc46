// Package pressure has the parts of a node agent for a machine whose resources run out: usage
// statistics, garbage collection, evictions, OOM kills, and preemption for critical pods. Each is a
// [part.Part] of its own: an agent that leaves one out does not link its code.
//
//	stats, err := pressure.NewStats(pressure.StatsConfig{...})
//	collection, err := pressure.NewCollection(pressure.CollectionConfig{...})
//	evict, err := pressure.NewEviction(pressure.EvictionConfig{Stats: stats.ForEviction(), Reclaim: collection.Reclaimer(), ...})
//
// The parts:
//
//   - [Stats]: usage of the node and its pods
//   - [Collection]: garbage collection of images and dead containers; rotation of logs
//   - [Eviction]: evicts pods under node pressure
//   - [OOMKills]: reports the kernel's OOM kills as events
//   - [Preemption]: terminates pods so that a critical one fits
//
// The collectors work without an agent, too: see packages gc and gc/crigc.
//
// Tier: beta.
package pressure
