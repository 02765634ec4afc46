package resources

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metrics of resizes, with its names.
type metrics struct {
	requested  *prometheus.CounterVec
	pending    *prometheus.GaugeVec
	inProgress prometheus.Gauge
	infeasible *prometheus.CounterVec
	accepted   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requested: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_requested_resizes_total",
			Help: "Requested changes of containers' resources.",
		}, []string{"resource", "requirement", "operation"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_pod_pending_resizes",
			Help: "Pods that request other resources than the allocated ones.",
		}, []string{"reason"}),
		inProgress: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pod_in_progress_resizes",
			Help: "Pods whose containers do not have their allocated resources yet.",
		}),
	}
	m.infeasible = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_pod_infeasible_resizes_total",
		Help: "Resizes that are impossible on the node, by reason.",
	}, []string{"reason_detail"})
	m.accepted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_pod_deferred_accepted_resizes_total",
		Help: "Resizes that were accepted after a wait, by the trigger of the decision.",
	}, []string{"retry_trigger"})
	return m, promshare.Register(reg, m.requested, m.pending, m.inProgress, m.infeasible, m.accepted)
}

// countPending counts a change of the condition of a pod that waits for a resize. before or after
// is nil if the pod had or has no such condition.
func (m *metrics) countPending(before, after *v1.PodCondition) {
	if before != nil {
		m.pending.WithLabelValues(reasonLabel(before.Reason)).Dec()
	}
	if after != nil {
		m.pending.WithLabelValues(reasonLabel(after.Reason)).Inc()
	}
}

func reasonLabel(reason string) string { return strings.ToLower(reason) }

// countRequested counts the differences between the requests of two versions of a pod.
func (m *metrics) countRequested(before, pod *v1.Pod) {
	was, is := allocationOf(before).Containers, allocationOf(pod).Containers
	for name, r := range is {
		old, ok := was[name]
		if !ok {
			continue
		}
		for _, resource := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			m.countChange(resource, "requests", old.Requests, r.Requests)
			m.countChange(resource, "limits", old.Limits, r.Limits)
		}
	}
}

func (m *metrics) countChange(name v1.ResourceName, requirement string, before, after v1.ResourceList) {
	if operation := change(name, before, after); operation != "" {
		m.requested.WithLabelValues(string(name), requirement, operation).Inc()
	}
}

// change returns the kubelet's label for the change of a resource: add, remove, increase or
// decrease. It returns "" if the resource did not change.
func change(name v1.ResourceName, before, after v1.ResourceList) string {
	p, had := before[name]
	q, has := after[name]
	switch {
	case !had && has:
		return "add"
	case had && !has:
		return "remove"
	case q.Cmp(p) > 0:
		return "increase"
	case q.Cmp(p) < 0:
		return "decrease"
	}
	return ""
}
