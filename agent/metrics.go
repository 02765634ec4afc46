package agent

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's, by its names, but for those of this module.
type metrics struct {
	rejections *prometheus.CounterVec
	restarted  prometheus.Counter
	orphans    prometheus.Counter
	panics     *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total",
			Help: "Pods that were rejected, by reason.",
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
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_panics_total",
			Help: "Panics of parts, sources, sinks and event recorders that were made errors, by name.",
		}, []string{"of"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.rejections, m.restarted, m.orphans, m.panics} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// rejectionLabel keeps the label's values few: reasons of other Admitters
// could be anything.
func rejectionLabel(reason string) string {
	switch reason {
	case "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "NodeName", "NodeAffinity", "NodePorts",
		"Evicted", "NodeShutdown", "InvalidPod", "TaintToleration", "SupplementalGroupsPolicyNotSupported", "PodFeatureUnsupported", "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError",
		"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
