// Package metrics has the metrics of an agent's core, with the kubelet's names.
package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Metrics counts the decisions of an agent. They may be used from any goroutine.
type Metrics struct {
	Restarted prometheus.Counter     // pods that started again under their UID
	Orphans   prometheus.Counter     // pods in the runtime that no source wanted
	Panics    *prometheus.CounterVec // of an embedder's values, by name

	rejections *prometheus.CounterVec
}

// New creates the metrics and registers them, unless reg is nil.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total",
			Help: "Pods that were rejected, by reason.",
		}, []string{"reason"}),
		Restarted: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "kubelet_restarted_pods_total",
			Help:        "Pods of one UID that were started again after they had ended.",
			ConstLabels: prometheus.Labels{"static": "true"},
		}),
		Orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_orphaned_runtime_pods_total",
			Help: "Pods found in the runtime that no source wanted.",
		}),
		Panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_panics_total",
			Help: "Recovered panics of parts, sources, sinks and event recorders, by name.",
		}, []string{"of"}),
	}
	return m, promshare.Register(reg, m.rejections, m.Restarted, m.Orphans, m.Panics)
}

// Rejected counts a pod that was rejected.
func (m *Metrics) Rejected(reason string) { m.rejections.WithLabelValues(rejectionLabel(reason)).Inc() }

// rejectionLabel returns the value of the label for a reason. It replaces unknown reasons,
// since an embedder's Admitters could use any number of them.
func rejectionLabel(reason string) string {
	switch reason {
	case "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "NodeName", "NodeAffinity", "NodePorts",
		"Evicted", "NodeShutdown", "InvalidPod", "TaintToleration", "SupplementalGroupsPolicyNotSupported", "PodFeatureUnsupported",
		"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError",
		"OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage":
		return reason
	}
	if strings.HasPrefix(reason, "OutOf") {
		return "OutOfExtendedResources"
	}
	return "Other"
}
