//go:build linux

package localcri

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/usage"
)

func now() int64 { return time.Now().UnixNano() }

// ContainerStats returns the current usage of a container.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, err := r.lookContainer(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.stats(ctx)
}

func (c *container) stats(ctx context.Context) (*runtimeapi.ContainerStats, error) {
	c.pod.mu.Lock()
	cgroup := c.record.Cgroup
	runs := c.life.Phase() == life.Running
	c.pod.mu.Unlock()
	if !runs {
		cgroup = "" // it is gone, or about to be
	}
	s, err := c.rt().usage.Container(ctx, cgroup, c.layer())
	if err != nil {
		return nil, coded(err)
	}
	if runs && slices.Index(c.pod.running(), c) == 0 {
		addFiles(s.GetWritableLayer(), c.pod.file("resolv.conf"), c.pod.file("hosts"), c.pod.file("hostname"))
	}
	s.Attributes = proto.CloneOf(&runtimeapi.ContainerAttributes{
		Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	})
	return s, nil
}

func (c *container) layer() usage.Layer {
	return usage.Layer{Upper: c.bundle(upperDir), Work: c.bundle(workDir)}
}

// addFiles adds the size of files that a sandbox's containers may write outside of their
// layers. The caller adds it to one of the containers, since the CRI has no value for the files
// of a sandbox.
func addFiles(layer *runtimeapi.FilesystemUsage, paths ...string) {
	if layer.GetUsedBytes() == nil {
		return
	}
	for _, p := range paths {
		var st unix.Stat_t
		if unix.Lstat(p, &st) == nil {
			layer.UsedBytes.Value += uint64(st.Blocks) * 512
		}
	}
}

// ListContainerStats returns the usage of running containers. Containers that end meanwhile are
// omitted.
func (r *Runtime) ListContainerStats(ctx context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	all, err := r.awaitAll(ctx, f.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.ContainerStats
	for _, p := range all {
		if !strings.HasPrefix(p.id, f.GetPodSandboxId()) {
			continue
		}
		for _, c := range p.running() {
			if !strings.HasPrefix(c.id, f.GetId()) || !matches(c.config.GetLabels(), f.GetLabelSelector()) {
				continue
			}
			s, err := c.stats(ctx)
			if ctx.Err() != nil {
				return nil, coded(context.Cause(ctx))
			}
			if err == nil {
				out = append(out, s)
			}
		}
	}
	return out, nil
}

func (p *pod) running() []*container {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*container
	for _, c := range p.listLocked() {
		if c.life.Phase() == life.Running && c.shownLocked() {
			out = append(out, c)
		}
	}
	return out
}

// PodSandboxStats returns the usage of a sandbox, from its cgroup, which is the parent of the
// containers' cgroups, and from the interfaces of its network namespace.
func (r *Runtime) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	p, err := r.lookPod(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.stats(ctx)
}

func (p *pod) stats(ctx context.Context) (*runtimeapi.PodSandboxStats, error) {
	linux, err := p.rt.usage.Pod(ctx, podCgroup(p.config.GetLinux().GetCgroupParent()), p.netns())
	if err != nil {
		return nil, coded(err)
	}
	for _, c := range p.running() {
		if s, err := c.stats(ctx); err == nil {
			linux.Containers = append(linux.Containers, s)
		}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: proto.CloneOf(&runtimeapi.PodSandboxAttributes{
			Id: p.id, Metadata: p.config.GetMetadata(), Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(),
		}),
		Linux: linux,
	}, nil
}

// ListPodSandboxStats returns the usage of ready sandboxes.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	all, err := r.awaitAll(ctx, f.GetLabelSelector())
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandboxStats
	for _, p := range all {
		if !strings.HasPrefix(p.id, f.GetId()) || !matches(p.config.GetLabels(), f.GetLabelSelector()) || !p.visible() || p.ready() != nil {
			continue
		}
		s, err := p.stats(ctx)
		if ctx.Err() != nil {
			return nil, coded(context.Cause(ctx))
		}
		if err == nil {
			out = append(out, s)
		}
	}
	return out, nil
}
