package placement

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// managerCounts are the kubelet's counters that CPUs and memory have in common
// (KEP-5526); their names lack its prefix. A source is "node", or "pod" for what comes out of a pod's own.
type managerCounts struct {
	allocations, errors *prometheus.CounterVec // by resource_name and source
	assignments         *prometheus.CounterVec // by resource_name and assignment_type
}

func newManagerCounts() managerCounts {
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "resource_manager_" + name, Help: help}, []string{"resource_name", label})
	}
	return managerCounts{
		allocations: counters("allocations_total", "Resources that containers and pods were given as their own.", "source"),
		errors:      counters("allocation_errors_total", "Resources that could not be given.", "source"),
		assignments: counters("container_assignments", "Containers by how alone they are on what they have.", "assignment_type"),
	}
}

func (m managerCounts) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.allocations, m.errors, m.assignments}
}

// How alone a container is: on what is the node's, in what is its pod's, or with
// others of its pod.
const (
	nodeExclusive = "node_exclusive"
	podExclusive  = "pod_exclusive"
	podShared     = "pod_shared"
)

// from is the source of what a container has, and how it has it.
func from(podLevel bool) (source, assignment string) {
	if podLevel {
		return "pod", podExclusive
	}
	return "node", nodeExclusive
}

// given counts what a pod was given.
func (m managerCounts) given(pod numa.Pod, r fit.Result, podLevel bool) {
	has, _ := r.State.CPU.Pod(pod.UID)
	pooled := !has.Pool.Empty()
	if pooled {
		m.allocations.WithLabelValues("cpu", "node").Inc()
	}
	for _, c := range r.Containers {
		switch r.State.CPU.Isolation(pod.UID, c.Name) {
		case cpumgr.OwnCPUs:
			source, assignment := from(pooled)
			m.allocations.WithLabelValues("cpu", source).Inc()
			m.assignments.WithLabelValues("cpu", assignment).Inc()
		case cpumgr.SharesPod:
			m.assignments.WithLabelValues("cpu", podShared).Inc()
		}
		if len(c.Memory) > 0 {
			source, assignment := from(podLevel)
			m.allocations.WithLabelValues("memory", source).Add(float64(len(c.Memory))) // once for each kind, as the kubelet
			m.assignments.WithLabelValues("memory", assignment).Inc()
		}
	}
}

// refused counts that a resource could not be given.
func (m managerCounts) refused(resource string, podLevel bool) {
	source, _ := from(podLevel)
	m.errors.WithLabelValues(resource, source).Inc()
}
