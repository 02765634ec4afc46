package resources

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// managerCounts are the kubelet's counters that CPUs and memory have in common
// (KEP-5526), with the names of Kubernetes 1.37. A source is "node", or "pod" for what comes out
// of a pod's own.
type managerCounts struct {
	allocations, errors *prometheus.CounterVec // by resource_name and source
	assignments         *prometheus.CounterVec // by resource_name and assignment_type
}

func newManagerCounts() managerCounts {
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_resource_manager_" + name, Help: help}, []string{"resource_name", label})
	}
	return managerCounts{
		allocations: counters("allocations_total", "Resources that containers and pods were given as their own.", "source"),
		errors:      counters("allocation_errors_total", "Resources that could not be given.", "source"),
		assignments: counters("container_assignments_total", "Containers by how alone they are on what they have.", "assignment_type"),
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

// pooled reports whether a pod is given its resources as a whole, which are divided among
// its containers then: it has resources of its own, and the topology manager's scope is
// the pod. Otherwise its containers are given those of the node.
func (m *placementMetrics) pooled(pod numa.Pod) bool {
	return m.cfg.PodLevel && pod.Resources != nil && m.scope() == topology.PodScope
}

// given counts what a pod was given. Of one that has its resources as a whole, each
// container is an allocation, and those without requests of their own share the rest: the
// kubelet counts so.
func (m managerCounts) given(pod numa.Pod, r fit.Result, pooled bool) {
	has, _ := r.State.CPU.Pod(pod.UID)
	for i, c := range r.Containers {
		switch isolation := r.State.CPU.Isolation(pod.UID, c.Name); {
		case !has.Pool.Empty():
			m.allocations.WithLabelValues("cpu", "pod").Inc()
			m.assignments.WithLabelValues("cpu", inPod(isolation == cpumgr.OwnCPUs)).Inc()
		case isolation == cpumgr.OwnCPUs:
			m.allocations.WithLabelValues("cpu", "node").Inc()
			m.assignments.WithLabelValues("cpu", nodeExclusive).Inc()
		}
		switch {
		case len(c.Memory) == 0:
		case pooled:
			m.allocations.WithLabelValues("memory", "pod").Inc()
			m.assignments.WithLabelValues("memory", inPod(pod.Containers[i].Bound)).Inc()
		default:
			m.allocations.WithLabelValues("memory", "node").Add(float64(len(c.Memory))) // once for each kind, as the kubelet
			m.assignments.WithLabelValues("memory", nodeExclusive).Inc()
		}
	}
}

// inPod is how a container has a part of what its pod has.
func inPod(own bool) string {
	if own {
		return podExclusive
	}
	return podShared
}

// refused counts that a resource could not be given.
func (m managerCounts) refused(resource string, pooled bool) {
	source := "node"
	if pooled {
		source = "pod"
	}
	m.errors.WithLabelValues(resource, source).Inc()
}
