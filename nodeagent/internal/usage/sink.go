package usage

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Stats returns the usage of the node and its pods. The result is not changed.
type Stats interface {
	Summary(ctx context.Context, cpuAndMemoryOnly bool) (*statsapi.Summary, error)
}

const nano = 1e-9

// metric is one name with its labels.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// sink sends samples that are not nil.
type sink chan<- prometheus.Metric

// put sends the value v times scale. If v is nil, it sends nothing. If the time at is zero, the
// sample has no time.
func (s sink) put(m metric, at metav1.Time, v *uint64, scale float64, labels ...string) {
	if v != nil {
		s.value(m, at.Time, float64(*v)*scale, labels...)
	}
}

func (s sink) value(m metric, at time.Time, v float64, labels ...string) {
	sample, err := prometheus.NewConstMetric(m.desc, m.kind, v, labels...)
	if err != nil {
		sample = prometheus.NewInvalidMetric(m.desc, err) // a name that is not UTF-8
	} else if !at.IsZero() {
		sample = prometheus.NewMetricWithTimestamp(at, sample)
	}
	s <- sample
}

// since sends a start time in Unix seconds.
func (s sink) since(m metric, start metav1.Time, labels ...string) {
	if !start.IsZero() {
		s.value(m, time.Time{}, float64(start.UnixNano())*nano, labels...)
	}
}

// newest returns the pods without those whose name a later started pod has.
func newest(pods []statsapi.PodStats) []*statsapi.PodStats {
	at := map[[2]string]int{}
	var out []*statsapi.PodStats
	for i := range pods {
		p := &pods[i]
		key := [2]string{p.PodRef.Namespace, p.PodRef.Name}
		j, seen := at[key]
		switch {
		case !seen:
			at[key] = len(out)
			out = append(out, p)
		case out[j].StartTime.Before(&p.StartTime):
			out[j] = p
		}
	}
	return out
}
