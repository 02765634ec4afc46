// Package stats measures what a node, its pods, containers, volumes and file systems
// use, in the types of the kubelet's summary API
// (k8s.io/kubelet/pkg/apis/stats/v1alpha1).
//
//	m, err := stats.New(stats.Config{
//		NodeName: "edge-1", Runtime: runtime, Volumes: volumes,
//		PodsCgroup: "/kubepods.slice", RootDir: "/var/lib/agent",
//	})
//	if err != nil {
//		return err
//	}
//	summary, err := m.Summary(ctx) // /stats/summary
//	node, err := m.Node(ctx)       // what eviction decides by: a handful of files
//	registry.MustRegister(m.ResourceMetrics(), m.VolumeMetrics(), m.LogMetrics())
//
// Nothing is measured but when it is asked for, and there are no goroutines:
// no housekeeping, no walk over directories. Numbers of processor, memory, swap
// and pressure come from the files of cgroup v1 or v2, one read for each file
// and question; the runtime says which containers there are, and how large
// their writable layers. Many who ask at the same time share one answer, which
// others get too for Config.MaxAge.
//
// # Faults
//
// [Collector.Summary] returns what could be read beside the errors of what could
// not: numbers are pointers, and nil is not known. A runtime that does not
// answer leaves the node's own numbers untouched. A cgroup that vanishes while
// it is read is no error.
//
// Tier: beta.
package stats
