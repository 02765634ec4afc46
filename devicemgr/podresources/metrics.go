package podresources

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// metrics are the kubelet's, by its names.
type metrics struct {
	total                  prometheus.Counter
	list, get, allocatable counts
}

// counts are of one method.
type counts struct{ calls, errors prometheus.Counter }

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	var errs []error
	counter := func(name, help string) prometheus.Counter {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"server_api_version"})
		if reg != nil {
			errs = append(errs, reg.Register(v))
		}
		return v.WithLabelValues("v1")
	}
	method := func(name string) counts {
		return counts{
			counter("pod_resources_endpoint_requests_"+name, "Calls of this method."),
			counter("pod_resources_endpoint_errors_"+name, "Calls of this method that failed."),
		}
	}
	m := &metrics{
		total: counter("pod_resources_endpoint_requests_total", "Calls of the pod resources endpoint."),
		list:  method("list"), get: method("get"), allocatable: method("get_allocatable"),
	}
	return m, errors.Join(errs...)
}

func (m *metrics) of(method string) counts {
	switch method {
	case api.PodResourcesLister_Get_FullMethodName:
		return m.get
	case api.PodResourcesLister_GetAllocatableResources_FullMethodName:
		return m.allocatable
	default:
		return m.list
	}
}
