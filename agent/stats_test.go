package agent_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cri/critest"
)

// measured is a runtime that measures containers, and has a disk for images.
type measured struct {
	*critest.Runtime
	disk string // where images are
}

func (m measured) ListContainerStats(ctx context.Context, _ *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	list, err := m.ListContainers(ctx, &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.ContainerStats
	for _, c := range list {
		s, err := m.ContainerStats(ctx, c.GetId())
		if err != nil {
			continue
		}
		s.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp: 1, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.disk},
			UsedBytes: &runtimeapi.UInt64Value{Value: 4096}, InodesUsed: &runtimeapi.UInt64Value{Value: 3},
		}
		out = append(out, s)
	}
	return out, nil
}

func (m measured) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.disk}, UsedBytes: &runtimeapi.UInt64Value{Value: 12345},
	}}}, nil
}

// measures has the node's runtime tell what containers use.
func (n *node) measures() {
	n.measured = &measured{n.rt, n.t.TempDir()}
}

// Without cgroups of pods, the Summary has what the runtime measured.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.measures()
		reg := prometheus.NewPedanticRegistry()
		n.metrics = reg
		c := runs("c")
		c.VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
		p := newPod("web", c)
		p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		n.want = []*v1.Pod{p}
		l := n.start()
		defer l.stop()
		settle()
		n.rt.SetMemoryUsed(n.id("c"), 5<<20)
		s, err := l.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Node.NodeName != "n1" || s.Node.Memory == nil || s.Node.Fs == nil || *s.Node.Runtime.ImageFs.UsedBytes != 12345 {
			t.Errorf("node %+v", s.Node)
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
			t.Fatalf("pods %+v", s.Pods)
		}
		pod := &s.Pods[0]
		if pod.PodRef != (statsapi.PodReference{Name: "web", Namespace: "default", UID: "uid-web"}) {
			t.Errorf("pod %+v", pod.PodRef)
		}
		if c := &pod.Containers[0]; c.Name != "c" || *c.Memory.WorkingSetBytes != 5<<20 || *c.Rootfs.UsedBytes != 4096 || c.StartTime.IsZero() {
			t.Errorf("container %+v", c)
		}
		if !slices.ContainsFunc(pod.VolumeStats, func(v statsapi.VolumeStats) bool { return v.Name == "scratch" && v.UsedBytes != nil }) {
			t.Errorf("volumes %+v", pod.VolumeStats)
		}
		small, err := l.CPUAndMemory(t.Context())
		if err != nil || small.Node.Fs != nil || *small.Pods[0].Memory.WorkingSetBytes != 5<<20 {
			t.Errorf("small summary %+v, %v", small, err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range families {
			names = append(names, f.GetName())
		}
		for _, want := range []string{"container_memory_working_set_bytes", "node_memory_working_set_bytes", "resource_scrape_error"} {
			if !slices.Contains(names, want) {
				t.Errorf("no metric %s", want)
			}
		}
	})
}

// A runtime that does not answer leaves the node's own figures.
func TestSummaryWithoutRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		l := n.start()
		defer l.stop()
		settle()
		n.rt.Die()
		s, err := l.Summary(t.Context())
		if err == nil || s == nil || s.Node.Memory == nil || s.Node.Fs == nil {
			t.Errorf("summary %+v, %v", s, err)
		}
		n.rt.Revive()
	})
}
