package agent

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's, by its names.
type metrics struct {
	rejections *prometheus.CounterVec
	restarted  prometheus.Counter
	orphans    prometheus.Counter
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
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.rejections), reg.Register(m.restarted), reg.Register(m.orphans))
}

// rejectionLabel keeps the label's values few: reasons of other Admitters
// could be anything.
func rejectionLabel(reason string) string {
	switch reason {
	case "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "NodeName", "NodeAffinity", "NodePorts",
		"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
