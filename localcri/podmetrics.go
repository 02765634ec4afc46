//go:build linux

package localcri

import (
	"context"
	"time"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/usage"
)

var _ criapi.RuntimeService = (*Runtime)(nil)

// ListMetricDescriptors describes the available metrics.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return usage.Descriptors(), nil
}

// ListPodSandboxMetrics returns the metrics of ready sandboxes and their running containers, with
// the kubelet's names. Sandboxes and containers that end during the call are omitted.
func (r *Runtime) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	all, err := r.awaitAll(ctx, nil)
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandboxMetrics
	for _, p := range all {
		if !p.visible() || p.ready() != nil {
			continue
		}
		m, err := p.metrics(ctx)
		if ctx.Err() != nil {
			return nil, coded(context.Cause(ctx))
		}
		if err == nil {
			out = append(out, m)
		}
	}
	return out, nil
}

func (p *pod) metrics(ctx context.Context) (*runtimeapi.PodSandboxMetrics, error) {
	meta, cgroup := p.config.GetMetadata(), podCgroup(p.config.GetLinux().GetCgroupParent())
	labels := usage.Labels{ID: cgroup, Name: p.id, Namespace: meta.GetNamespace(), Pod: meta.GetName()}
	own, err := p.rt.usage.PodMetrics(ctx, cgroup, p.netns(), time.Unix(0, p.created), labels)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.PodSandboxMetrics{PodSandboxId: p.id, Metrics: own}
	for _, c := range p.running() {
		p.mu.Lock()
		started, cgroup, image := time.Unix(0, c.life.Record().Started), c.record.Cgroup, c.record.Image
		p.mu.Unlock()
		l := usage.Labels{
			Container: c.config.GetMetadata().GetName(), ID: cgroup, Image: image, Name: c.id, Namespace: meta.GetNamespace(), Pod: meta.GetName(),
		}
		m, err := p.rt.usage.ContainerMetrics(ctx, cgroup, c.layer(), started, l)
		if err != nil {
			continue
		}
		out.ContainerMetrics = append(out.ContainerMetrics, &runtimeapi.ContainerMetrics{ContainerId: c.id, Metrics: m})
	}
	return out, nil
}
