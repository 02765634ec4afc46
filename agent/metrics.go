package agent

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// metrics are the kubelet's, by its names.
type metrics struct {
	rejections *prometheus.CounterVec
	restarted  prometheus.Counter
	orphans    prometheus.Counter

	resizes           *prometheus.CounterVec
	pendingResizes    *prometheus.GaugeVec
	resizesInProgress prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total",
			Help: "Pods that were turned away, by reason.",
		}, []string{"reason"}),
		restarted: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "kubelet_restarted_pods_total",
			Help:        "Pods of one UID that were started again after they had ended.",
			ConstLabels: prometheus.Labels{"static": "true"},
		}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_orphaned_runtime_pods_total",
			Help: "Pods found in the runtime that nothing wanted.",
		}),
		resizes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_requested_resizes_total",
			Help: "Changes of containers' resources that were asked for.",
		}, []string{"resource", "requirement", "operation"}),
		pendingResizes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_pod_pending_resizes",
			Help: "Pods that ask for other resources than they were granted.",
		}, []string{"reason"}),
		resizesInProgress: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pod_in_progress_resizes",
			Help: "Pods whose containers do not have the resources yet that they were granted.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.rejections, m.restarted, m.orphans, m.resizes, m.pendingResizes, m.resizesInProgress} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// countResize counts what a new version of a pod asks for otherwise than the
// one before.
func (m *metrics) countResize(before, pod *v1.Pod) {
	was, is := grantedOf(before).Containers, grantedOf(pod).Containers
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

func (m *metrics) countChange(name v1.ResourceName, requirement string, was, is v1.ResourceList) {
	p, had := was[name]
	q, has := is[name]
	operation := ""
	switch {
	case !had && has:
		operation = "add"
	case had && !has:
		operation = "remove"
	case q.Cmp(p) > 0:
		operation = "increase"
	case q.Cmp(p) < 0:
		operation = "decrease"
	default:
		return
	}
	m.resizes.WithLabelValues(string(name), requirement, operation).Inc()
}

// reasonLabel is the label for a reason of the condition PodResizePending.
func reasonLabel(reason string) string { return strings.ToLower(reason) }

// rejectionLabel keeps the label's values few: reasons of other Admitters
// could be anything.
func rejectionLabel(reason string) string {
	switch reason {
	case "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "NodeName", "NodeAffinity", "NodePorts",
		"Evicted", "NodeShutdown", "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError",
		"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
