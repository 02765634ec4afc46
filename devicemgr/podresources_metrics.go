package devicemgr

import (
	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/nodewright/nodewright/internal/promshare"
)

// podResourcesMetrics has the kubelet's metrics, under the kubelet's names.
type podResourcesMetrics struct {
	list, get, allocatable counts
	// oldest returns the counters of v1alpha1, and creates them at its first call. A series that
	// nobody uses would be a second result of queries that do not name the version.
	oldest func() counts
}

// counts has the counters of one method of one version.
type counts struct{ total, calls, errors prometheus.Counter }

func newPodResourcesMetrics(reg prometheus.Registerer) (*podResourcesMetrics, error) {
	var all []prometheus.Collector
	counter := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"server_api_version"})
		all = append(all, v)
		return v
	}
	total := counter("kubelet_pod_resources_endpoint_requests_total", "Calls of the pod resources endpoint.")
	method := func(name string) func(version string) counts {
		calls := counter("kubelet_pod_resources_endpoint_requests_"+name, "Calls of this method.")
		failed := counter("kubelet_pod_resources_endpoint_errors_"+name, "Calls of this method that failed.")
		return func(version string) counts {
			return counts{total.WithLabelValues(version), calls.WithLabelValues(version), failed.WithLabelValues(version)}
		}
	}
	list := method("list")
	m := &podResourcesMetrics{list: list("v1"), oldest: func() counts { return list("v1alpha1") }, get: method("get")("v1"), allocatable: method("get_allocatable")("v1")}
	return m, promshare.Register(reg, all...)
}

func (m *podResourcesMetrics) of(method string) counts {
	switch method {
	case api.PodResourcesLister_Get_FullMethodName:
		return m.get
	case api.PodResourcesLister_GetAllocatableResources_FullMethodName:
		return m.allocatable
	case v1alpha1.PodResourcesLister_List_FullMethodName:
		return m.oldest()
	default:
		return m.list
	}
}
