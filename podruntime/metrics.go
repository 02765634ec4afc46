package podruntime

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's, by its names.
type metrics struct {
	pods, podErrors prometheus.Counter
	containers      *prometheus.CounterVec
	containerErrors *prometheus.CounterVec
	sandbox         *prometheus.HistogramVec
	sandboxErrors   *prometheus.CounterVec
	resizes         *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		pods:            prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total", Help: "Sandboxes started."}),
		podErrors:       prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_errors_total", Help: "Sandboxes that could not be started."}),
		containers:      counter("kubelet_started_containers_total", "Containers started.", "container_type"),
		containerErrors: counter("kubelet_started_containers_errors_total", "Containers that could not be started.", "container_type", "code"),
		sandbox: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds", Help: "Duration of starting a sandbox.",
		}, []string{"runtime_handler"}),
		sandboxErrors: counter("kubelet_run_podsandbox_errors_total", "Sandboxes that could not be started.", "runtime_handler"),
		resizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_resize_duration_milliseconds", Help: "Duration of changing the resources of a pod's running containers.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
		}, []string{"success"}),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.pods, m.podErrors, m.containers, m.containerErrors, m.sandbox, m.sandboxErrors, m.resizes} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
