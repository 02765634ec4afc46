package resources

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// managerCounts has the kubelet's counters for both CPUs and memory (KEP-5526), with the names of
// Kubernetes 1.37. The source is "node", or "pod" for a container of a pod with pod-level
// resources.
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

// Types of assignments: from the node exclusively, from the pod's resources exclusively, or shared
// with other containers of the pod.
const (
	nodeExclusive = "node_exclusive"
	podExclusive  = "pod_exclusive"
	podShared     = "pod_shared"
)

// pooled reports whether resources are allocated to the pod and then divided among its
// containers. This is so if it has pod-level resources and the topology manager's scope is the
// pod.
func (m *placementMetrics) pooled(pod numa.Pod) bool {
	return m.cfg.PodLevel && pod.Resources != nil && m.scope() == topology.PodScope
}

// given counts the allocations of a pod. In a pooled pod, each container counts as an allocation,
// and containers without requests share the rest, as in the kubelet.
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
			m.allocations.WithLabelValues("memory", "node").Add(float64(len(c.Memory))) // once for each kind, as in the kubelet
			m.assignments.WithLabelValues("memory", nodeExclusive).Inc()
		}
	}
}

// inPod returns the kubelet's label for the CPUs or memory of a container in a pod with pod-level
// resources: exclusive, or shared with the pod's other containers.
func inPod(exclusive bool) string {
	if exclusive {
		return podExclusive
	}
	return podShared
}

// refused counts a resource that could not be allocated.
func (m managerCounts) refused(resource string, pooled bool) {
	source := "node"
	if pooled {
		source = "pod"
	}
	m.errors.WithLabelValues(resource, source).Inc()
}
