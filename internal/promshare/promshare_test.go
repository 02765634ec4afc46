package promshare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

func TestTwoManagersOnOneRegisterer(t *testing.T) {
	for name, wrap := range map[string]func(prometheus.Registerer) prometheus.Registerer{
		"plain":   func(r prometheus.Registerer) prometheus.Registerer { return r },
		"wrapped": func(r prometheus.Registerer) prometheus.Registerer { return prometheus.WrapRegistererWithPrefix("", r) },
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			for i := range 3 {
				n := float64(i + 1)
				calls := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calls_total", Help: "h"}, []string{"op"})
				calls.WithLabelValues("list").Add(n)
				if i == 2 {
					calls.WithLabelValues("start").Add(7)
				}
				pods := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pods", Help: "h"})
				pods.Set(n)
				seen := prometheus.NewGauge(prometheus.GaugeOpts{Name: "last_seen_seconds", Help: "h"})
				seen.Set(100 - n)
				took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Help: "h", Buckets: []float64{1, 2}})
				took.Observe(n - .5)
				for _, c := range []prometheus.Collector{calls, pods, seen, took} {
					if err := promshare.Register(wrap(reg), c); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := text(t, reg)
			const want = `calls_total{op="list"} 6
calls_total{op="start"} 7
last_seen_seconds{} 99
pods{} 6
took_seconds{} 1/2/3 sum 4.5
`
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// text has a line for each series of reg.
func text(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(&b, "%s{%s} ", f.GetName(), strings.Join(labels, ","))
			switch {
			case m.Histogram != nil:
				h := m.Histogram
				fmt.Fprintf(&b, "%d/%d/%d sum %v\n", h.Bucket[0].GetCumulativeCount(), h.Bucket[1].GetCumulativeCount(), h.GetSampleCount(), h.GetSampleSum())
			default:
				fmt.Fprintln(&b, m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}
	}
	return b.String()
}

// What is another metric under the same name stays an error.
func TestClash(t *testing.T) {
	reg := prometheus.NewRegistry()
	mine := prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total", Help: "h"})
	if err := reg.Register(mine); err != nil {
		t.Fatal(err)
	}
	for _, c := range []prometheus.Collector{
		prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total", Help: "h"}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "a_total", Help: "other"}),
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: "h"}, []string{"x"}),
	} {
		if err := promshare.Register(reg, c); err == nil {
			t.Error("no error")
		}
	}
}
