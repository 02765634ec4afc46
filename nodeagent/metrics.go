package nodeagent

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	usagemetrics "github.com/nodewright/nodewright/nodeagent/internal/usage"
)

// statistics serves the node's usage through package server. A node that measures nothing has no
// statistics.
type statistics struct{ u Usage }

// Summary implements the server's interface. cpuAndMemoryOnly is the request's parameter
// only_cpu_and_memory.
func (s statistics) Summary(ctx context.Context, cpuAndMemoryOnly bool) (*statsapi.Summary, error) {
	if cpuAndMemoryOnly {
		return s.u.CPUAndMemory(ctx)
	}
	return s.u.Summary(ctx)
}

// scrapeTimeout limits a scrape with measurements. It is Prometheus' default
// timeout.
const scrapeTimeout = 10 * time.Second

// gatherers returns the metrics by path. Without Options.Metrics, /metrics is
// empty. Each path has a registry of its own, because some metrics are on two of
// them.
func (n *Node) gatherers() (map[string]prometheus.Gatherer, error) {
	reg := n.options.Metrics
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	all := map[string]prometheus.Gatherer{"/metrics": reg, "/metrics/probes": probeMetrics(reg)}
	u := n.builder.Facts.Usage
	if u == nil {
		return all, nil
	}
	resources, containers := prometheus.NewRegistry(), prometheus.NewRegistry()
	all["/metrics/resource"], all["/metrics/cadvisor"] = resources, containers
	return all, errors.Join(
		resources.Register(usagemetrics.Resource(statistics{u}, scrapeTimeout)),
		containers.Register(usagemetrics.Containers(usagemetrics.Config{
			Stats: statistics{u}, Details: &details{usage: u, runtime: n.builder.Runtime}, Machine: n.builder.machine(), Timeout: scrapeTimeout,
		})),
	)
}

// probeMetrics returns the metrics of reg about probes. They are also in /metrics.
// The kubelet serves them only at /metrics/probes.
func probeMetrics(reg prometheus.Gatherer) prometheus.GathererFunc {
	return func() ([]*dto.MetricFamily, error) {
		all, err := reg.Gather()
		var out []*dto.MetricFamily
		for _, f := range all {
			if strings.HasPrefix(f.GetName(), "prober_") {
				out = append(out, f)
			}
		}
		return out, err
	}
}
