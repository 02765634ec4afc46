// Package stats is the part of a node agent that reports what its node, pods,
// containers and volumes use.
//
//	p, err := stats.New(stats.Config{
//		NodeName: name, Runtime: runtime, Images: runtime, Volumes: volumes,
//		PodsCgroup: stats.NoCgroup, RootDir: root, LogDir: "/var/log/pods", Metrics: registry,
//	})
//	parts := []part.Part{p, ...}
//	summary, err := p.Summary(ctx)  // for /stats/summary
//	details, err := p.Details()     // for /metrics/cadvisor
//	figures := p.ForEviction()      // for package eviction
//
// It puts package node/stats, which reads cgroups, /proc and file systems,
// together with a CRI runtime, with what the agent has observed of its pods, and
// with the volumes.
//
// # Hooks
//
// Join keeps the agent and registers the metrics /metrics/resource is made of, and
// those of volumes; Run owns the measurements of volumes with a limit.
//
// # Ownership
//
// [New] has no side effects. Figures are read when somebody asks, in the asker's
// goroutine and within the asker's context; a [Part.Summary] not older than a
// second is shared by all who ask. The exception are emptyDir volumes that have
// a limit: for [Part.ForEviction] they are walked in goroutines that [Part.Run]
// owns, and only while it runs, so that a disk that hangs holds up neither the
// asker beyond its context nor the other volumes.
//
// # Faults
//
// What could be read is returned beside the error of what could not. A runtime
// that does not measure containers (no ListContainerStats) leaves the figures of
// cgroups. Pods of which the agent knows that nothing runs use no memory.
//
// Tier: beta.
package stats
