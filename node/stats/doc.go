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
//	registry.MustRegister(m.ResourceMetrics(), m.VolumeMetrics(), m.LogMetrics())
//
// Values are measured only when they are requested. No goroutine measures in the
// background, and no directory tree is walked. CPU, memory, swap and pressure come from
// the files of cgroup v1 or v2, with one read for each file and request; the runtime
// lists the containers and the sizes of their writable layers. Concurrent requests
// share one answer, which is reused for a second.
//
// # Faults
//
// [Collector.Summary] returns the values that could be read together with the errors of the
// others: numbers are pointers, and nil means not known. If the runtime does not answer, the
// node's own numbers are complete. It is not an error if a cgroup is removed while it is read.
//
// Tier: beta.
package stats
