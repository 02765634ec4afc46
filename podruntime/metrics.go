package podruntime

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/podlife"
)

// metrics has the kubelet's metrics of starts, with the same names. Starts that fail are counted.
// Starts that have to wait or are interrupted are not.
type metrics struct {
	pods, podErrors     prometheus.Counter
	userNS, userNSError prometheus.Counter // pods with a user namespace of their own
	containers          *prometheus.CounterVec
	containerErrors     *prometheus.CounterVec
	sandbox             *prometheus.HistogramVec
	sandboxErrors       *prometheus.CounterVec

	volumes, volumesMounted, volumeErrors prometheus.Counter // volumes are image volumes

	hookFallbacks, sleepsCut prometheus.Counter

	resizes *prometheus.HistogramVec
}

// newMetrics makes the metrics and, unless reg is nil, registers them. The error names every metric
// that could not be registered.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		all = append(all, c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		all = append(all, c)
		return c
	}
	m := &metrics{
		pods:      counter("kubelet_started_pods_total", "Starts of sandboxes."),
		podErrors: counter("kubelet_started_pods_errors_total", "Starts of sandboxes that failed."),
		userNS:    counter("kubelet_started_user_namespaced_pods_total", "Starts of sandboxes with a user namespace of their own."),
		userNSError: counter("kubelet_started_user_namespaced_pods_errors_total",
			"Starts of sandboxes with a user namespace of their own that failed."),
		containers:      counters("kubelet_started_containers_total", "Starts of containers.", "container_type"),
		containerErrors: counters("kubelet_started_containers_errors_total", "Starts of containers that failed.", "container_type", "code"),
		sandbox: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds", Help: "Duration of starting a sandbox.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 14), // to 12 minutes: as runtime operations have them
		}, []string{"runtime_handler"}),
		resizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_resize_duration_milliseconds", Help: "Duration of changing the resources of a pod's running containers.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
		}, []string{"success"}),
		sandboxErrors:  counters("kubelet_run_podsandbox_errors_total", "Starts of sandboxes that failed.", "runtime_handler"),
		volumes:        counter("kubelet_image_volume_requested_total", "Image volumes that containers to be started mount."),
		volumesMounted: counter("kubelet_image_volume_mounted_succeed_total", "Image volumes that were mounted."),
		volumeErrors:   counter("kubelet_image_volume_mounted_errors_total", "Image volumes that could not be mounted."),
		hookFallbacks:  counter("kubelet_lifecycle_handler_http_fallbacks_total", "HTTPS hooks that were repeated over HTTP."),
		sleepsCut:      counter("kubelet_sleep_action_terminated_early_total", "Sleep hooks that were cut short."),
	}
	return m, promshare.Register(reg, append(all, m.sandbox, m.resizes)...)
}

// startsPod counts a sandbox that is about to be made, and failsPod a sandbox that could not be
// made. userns reports that the pod has a user namespace of its own.
func (m *metrics) startsPod(userns bool) {
	m.pods.Inc()
	if userns {
		m.userNS.Inc()
	}
}

func (m *metrics) failsPod(userns bool) {
	m.podErrors.Inc()
	if userns {
		m.userNSError.Inc()
	}
}

// startedContainer counts a start that was tried; err is its failure. volumes is the number of
// image volumes of the container, which the runtime mounts when it creates the container.
func (m *metrics) startedContainer(kind string, volumes int, err error) {
	m.containers.WithLabelValues(kind).Inc()
	m.volumes.Add(float64(volumes))
	if err == nil {
		m.volumesMounted.Add(float64(volumes))
		return
	}
	m.containerErrors.WithLabelValues(kind, reasonOf(err)).Inc()
	// After other failures nothing was mounted, nor tried: the runtime was not asked to make the
	// container.
	switch kindOf(err) {
	case podlife.CreateFailed:
		m.volumeErrors.Add(float64(volumes))
	// The container was created, and with it the volumes were mounted.
	case podlife.RunFailed, podlife.HookFailed:
		m.volumesMounted.Add(float64(volumes))
	}
}
