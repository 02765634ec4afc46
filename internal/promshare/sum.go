package promshare

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// sum adds up the series of several collectors.
type sum struct {
	series map[key]*total
	order  []key // the keys of series, in the order of their first occurrence
}

// key identifies a series.
type key struct {
	desc   string
	labels string
}

// total is one series of the sum.
type total struct {
	desc  *prometheus.Desc
	value *dto.Metric
}

// Desc implements [prometheus.Metric].
func (t *total) Desc() *prometheus.Desc { return t.desc }

// Write implements [prometheus.Metric].
func (t *total) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge, out.Untyped = t.value.Label, t.value.Counter, t.value.Gauge, t.value.Untyped
	out.Histogram, out.Summary, out.TimestampMs = t.value.Histogram, t.value.Summary, t.value.TimestampMs
	return nil
}

func (s *sum) add(c prometheus.Collector) {
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	for m := range ch {
		value := &dto.Metric{}
		if m.Write(value) != nil {
			continue // leaves out a series that cannot be read
		}
		k := key{m.Desc().String(), labels(value)}
		if t, ok := s.series[k]; ok {
			merge(t.value, value, isOne(k.desc))
			continue
		}
		if s.series == nil {
			s.series = map[key]*total{}
		}
		s.series[k] = &total{m.Desc(), value}
		s.order = append(s.order, k)
	}
}

func labels(m *dto.Metric) string {
	var b strings.Builder
	for _, l := range m.Label { // sorted by client_golang
		b.WriteString(l.GetName() + "\xff" + l.GetValue() + "\xff")
	}
	return b.String()
}

// noAmounts are suffixes of the names of gauges that cannot be added: points in time, ages,
// versions, information about a program, and switches.
var noAmounts = []string{
	"timestamp_seconds", "_time_seconds", "last_seen_seconds", "expiration_seconds", "_ttl_seconds", "_age_seconds",
	"_version", "_info", "_node_name", "_metrics_provider", "feature_enabled", "_healthcheck", "_pressure",
}

// isOne reports whether desc describes a gauge that cannot be added; see noAmounts.
func isOne(desc string) bool {
	return slices.ContainsFunc(noAmounts, func(end string) bool { return strings.Contains(desc, end+`"`) })
}

func merge(into, from *dto.Metric, largest bool) {
	switch {
	case into.Counter != nil && from.Counter != nil:
		*into.Counter.Value += from.Counter.GetValue()
	case into.Gauge != nil && from.Gauge != nil && largest:
		*into.Gauge.Value = math.Max(into.Gauge.GetValue(), from.Gauge.GetValue())
	case into.Gauge != nil && from.Gauge != nil:
		*into.Gauge.Value += from.Gauge.GetValue()
	case into.Untyped != nil && from.Untyped != nil:
		*into.Untyped.Value += from.Untyped.GetValue()
	case into.Histogram != nil && from.Histogram != nil:
		mergeHistograms(into.Histogram, from.Histogram)
	}
}

// mergeHistograms adds the buckets of src to the buckets of dst with the same upper bound.
func mergeHistograms(dst, src *dto.Histogram) {
	*dst.SampleCount += src.GetSampleCount()
	*dst.SampleSum += src.GetSampleSum()
	for _, b := range src.Bucket {
		i, found := slices.BinarySearchFunc(dst.Bucket, b.GetUpperBound(), func(b *dto.Bucket, bound float64) int {
			return cmp.Compare(b.GetUpperBound(), bound)
		})
		if found {
			*dst.Bucket[i].CumulativeCount += b.GetCumulativeCount()
		}
	}
}
