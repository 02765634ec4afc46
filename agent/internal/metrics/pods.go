package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podworker"
)

// Pods counts pods at each scrape. Its functions are called from any goroutine and must only read
// memory.
type Pods struct {
	Active  func() []*v1.Pod          // admitted, and not ended
	Desired func() []*v1.Pod          // pods that the sources want
	Workers func() []podworker.Status // states of all workers
	Work    func() []local.NodeWork   // running and waiting work, by kind
}

var (
	activeDesc = prometheus.NewDesc("kubelet_active_pods",
		"Pods that were admitted and have not ended.", []string{"static"}, nil)
	workingDesc = prometheus.NewDesc("kubelet_working_pods",
		"Pods that have a worker, by its stage and by who wants the pod: desired, orphan or runtime_only.", []string{"lifecycle", "config", "static"}, nil)
	runningDesc = prometheus.NewDesc("nodewright_work_in_flight",
		"Work that is being done, by its kind.", []string{"kind"}, nil)
	limitDesc = prometheus.NewDesc("nodewright_work_limit",
		"Limit of concurrent work, by its kind. Kinds without a limit are omitted.", []string{"kind"}, nil)
	waitingDesc = prometheus.NewDesc("nodewright_work_waiting",
		"Work that waits for other work of its kind to end.", []string{"kind"}, nil)
	ephemeralDesc = prometheus.NewDesc("kubelet_managed_ephemeral_containers",
		"Ephemeral containers of the pods that should run.", nil, nil)
)

// Describe implements prometheus.Collector.
func (Pods) Describe(ch chan<- *prometheus.Desc) {
	ch <- activeDesc
	ch <- workingDesc
	ch <- ephemeralDesc
	ch <- runningDesc
	ch <- limitDesc
	ch <- waitingDesc
}

// Collect implements prometheus.Collector.
func (p Pods) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	active := countStatic(p.Active())
	gauge(activeDesc, active[false], "")
	gauge(activeDesc, active[true], "true")

	pods, ephemeral := p.Desired(), 0
	desired := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		desired[pod.UID] = true
		ephemeral += len(pod.Spec.EphemeralContainers)
	}
	gauge(ephemeralDesc, ephemeral)

	for _, w := range p.Work() {
		gauge(runningDesc, w.Running, w.Kind)
		gauge(waitingDesc, w.Waiting, w.Kind)
		if w.Limit > 0 {
			gauge(limitDesc, w.Limit, w.Kind)
		}
	}

	counts := map[working]int{}
	for _, w := range p.Workers() {
		counts[workingOf(&w, desired)]++
	}
	for _, k := range allWorking() {
		gauge(workingDesc, counts[k], k.kind.String(), k.config, k.static)
	}
}

func countStatic(pods []*v1.Pod) map[bool]int {
	n := map[bool]int{}
	for _, p := range pods {
		n[podmeta.IsStatic(p)]++
	}
	return n
}

// working is one series of kubelet_working_pods.
type working struct {
	kind           podworker.Kind
	config, static string
}

func workingOf(w *podworker.Status, desired map[types.UID]bool) working {
	switch {
	case w.Pod == nil:
		return working{w.Kind, "runtime_only", "unknown"}
	case desired[w.UID]:
		return working{w.Kind, "desired", staticLabel(w.Static)}
	default:
		return working{w.Kind, "orphan", staticLabel(w.Static)}
	}
}

func staticLabel(static bool) string {
	if static {
		return "true"
	}
	return ""
}

// allWorking returns every series, so that series with the value 0 are exported too.
func allWorking() (all []working) {
	for _, k := range []podworker.Kind{podworker.Sync, podworker.Terminating, podworker.Terminated} {
		for _, config := range []string{"desired", "orphan"} {
			all = append(all, working{k, config, ""}, working{k, config, "true"})
		}
		all = append(all, working{k, "runtime_only", "unknown"})
	}
	return all
}
