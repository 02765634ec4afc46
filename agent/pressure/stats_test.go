package pressure_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/volumemgr"
)

const statsTestbox = "localhost/nodewright/testbox:1"

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
		out = append(out, &runtimeapi.ContainerStats{
			Attributes:    &runtimeapi.ContainerAttributes{Id: c.GetId()},
			Memory:        &runtimeapi.MemoryUsage{Timestamp: 1, UsageBytes: &runtimeapi.UInt64Value{Value: 6 << 20}, WorkingSetBytes: &runtimeapi.UInt64Value{Value: 5 << 20}},
			WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: 1, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.disk}, UsedBytes: &runtimeapi.UInt64Value{Value: 4096}, InodesUsed: &runtimeapi.UInt64Value{Value: 3}},
		})
	}
	return out, nil
}

func (m measured) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: m.disk}, UsedBytes: &runtimeapi.UInt64Value{Value: 12345},
	}}}, nil
}

// volumes are those of all pods.
type volumes []volumemgr.Stats

func (v volumes) Stats(context.Context, types.UID) ([]volumemgr.Stats, error) { return v, nil }

// rig is a part of a host with the pod web, whose container c runs.
type rig struct {
	*pressure.Stats
	host *agenttest.Host
	rt   *critest.Runtime
	id   string // of c
}

func newRig(t *testing.T, change func(*pressure.StatsConfig)) *rig {
	t.Helper()
	rt := critest.New()
	rt.AddImage(statsTestbox)
	m := measured{rt, t.TempDir()}
	cfg := pressure.StatsConfig{NodeName: "n1", Runtime: m, Images: m, PodsCgroup: pressure.NoCgroup, RootDir: t.TempDir(), LogDir: t.TempDir()}
	if change != nil {
		change(&cfg)
	}
	p, err := pressure.NewStats(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Stats: p, host: agenttest.NewHost(t), rt: rt}
	r.host.SetPods(web())
	if err := p.Join(r.host); err != nil {
		t.Fatal(err)
	}
	r.begin(t)
	return r
}

func web() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-web"}}
}

// begin starts the container in the runtime, and has the host observe it.
func (r *rig) begin(t *testing.T) {
	t.Helper()
	labels := map[string]string{"io.kubernetes.pod.uid": "uid-web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default"}
	sandbox, err := r.rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "uid-web", Namespace: "default"}, Labels: labels,
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	labels = maps.Clone(labels) // the sandbox's are looked at by now
	labels["io.kubernetes.container.name"] = "c"
	r.id, err = r.rt.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Labels: labels,
		Image: &runtimeapi.ImageSpec{Image: statsTestbox}, Args: []string{"sleep", "forever"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.rt.StartContainer(t.Context(), r.id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.rt.Kill(r.id) })
	r.host.SetObserved(&observed.Pod{
		UID: "uid-web", Name: "web", Namespace: "default", ObservedAt: time.Now(),
		Sandboxes:  []observed.Sandbox{{ID: sandbox, State: observed.Running}},
		Containers: []observed.Container{{ID: r.id, Name: "c", Image: statsTestbox, State: observed.Running, StartedAt: time.Unix(5, 0)}},
	})
}

// Without cgroups of pods, the Summary has what the runtime measured.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		r := newRig(t, func(c *pressure.StatsConfig) {
			c.Metrics = reg
			c.Volumes = volumes{
				{Name: "scratch", Ephemeral: true, Usage: volumemgr.Usage{Capacity: -1, Available: -1, Used: 77, Inodes: -1, InodesFree: -1, InodesUsed: 2}},
				{Name: "data", Claim: "claim", Usage: volumemgr.Usage{Capacity: 1000, Available: 900, Used: 100}},
			}
		})
		defer r.rt.Kill(r.id)
		s, err := r.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Node.NodeName != "n1" || s.Node.Memory == nil || s.Node.Fs == nil || *s.Node.Runtime.ImageFs.UsedBytes != 12345 {
			t.Errorf("node %+v", s.Node)
		}
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 || len(s.Pods[0].VolumeStats) != 2 {
			t.Fatalf("pods %+v", s.Pods)
		}
		pod := &s.Pods[0]
		if pod.PodRef != (statsapi.PodReference{Name: "web", Namespace: "default", UID: "uid-web"}) {
			t.Errorf("pod %+v", pod.PodRef)
		}
		if c := &pod.Containers[0]; c.Name != "c" || *c.Memory.WorkingSetBytes != 5<<20 || *c.Rootfs.UsedBytes != 4096 || c.StartTime.Unix() != 5 {
			t.Errorf("container %+v", c)
		}
		for _, v := range pod.VolumeStats {
			switch v.Name {
			case "scratch":
				if v.PVCRef != nil || *v.UsedBytes != 77 || v.CapacityBytes != nil || *v.InodesUsed != 2 {
					t.Errorf("volume %+v", v)
				}
			case "data":
				if v.PVCRef == nil || *v.PVCRef != (statsapi.PVCReference{Name: "claim", Namespace: "default"}) || *v.CapacityBytes != 1000 {
					t.Errorf("volume %+v", v)
				}
			}
		}
		small, err := r.CPUAndMemory(t.Context())
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
		for _, want := range []string{"container_memory_working_set_bytes", "node_memory_working_set_bytes", "resource_scrape_error", "kubelet_volume_stats_capacity_bytes"} {
			if !slices.Contains(names, want) {
				t.Errorf("no metric %s in %q", want, names)
			}
		}
	})
}

// Without volumes there are those alone that count as local storage of the pod.
func TestSummaryWithoutVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pressure.StatsConfig) {
			c.NoVolumes = true
			c.Volumes = volumes{{Name: "scratch", Ephemeral: true, Usage: volumemgr.Usage{Used: 77}}, {Name: "data", Claim: "claim", Usage: volumemgr.Usage{Used: 100}}}
		})
		defer r.rt.Kill(r.id)
		s, err := r.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v := s.Pods[0].VolumeStats; len(v) != 1 || v[0].Name != "scratch" {
			t.Errorf("volumes %+v", v)
		}
	})
}

// A runtime that does not answer leaves the node's own figures.
func TestSummaryWithoutRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.rt.Kill(r.id)
		r.rt.Fail("ListPodSandbox", errors.New("no"))
		s, err := r.Summary(t.Context())
		if err == nil || s == nil || s.Node.Memory == nil || s.Node.Fs == nil {
			t.Errorf("summary %+v, %v", s, err)
		}
	})
}

// Details are those of pods that run, beside which others are left out.
func TestDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.rt.Kill(r.id)
		r.host.SetObserved(&observed.Pod{UID: "uid-job", Containers: []observed.Container{{ID: "x", Name: "c", State: observed.Exited}}})
		all, err := r.Details()
		if err != nil || len(all) != 1 || all[0].UID != "uid-web" || all[0].Sandbox.ID == "" || len(all[0].Containers) != 1 {
			t.Fatalf("details %+v, %v", all, err)
		}
		if c := all[0].Containers[0]; c.ID != r.id || c.Name != "c" || c.Image != statsTestbox {
			t.Errorf("container %+v", c)
		}
	})
}

// A pod that runs nothing is known to use nothing; one that cannot be looked at
// is not known.
func TestFiguresOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.rt.Kill(r.id)
		idle := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "idle", UID: "uid-idle"}}
		figures := r.ForEviction()
		got, err := figures.Pods(t.Context(), []*v1.Pod{web(), idle}, eviction.WantMemory)
		if err != nil || got["uid-web"] == nil || got["uid-web"].Memory != 5<<20 || got["uid-idle"] == nil || got["uid-idle"].Memory != 0 || got["uid-idle"].Time.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := figures.Pods(t.Context(), []*v1.Pod{idle}, eviction.WantDisk); err != nil || got["uid-idle"] != nil {
			t.Errorf("of disk: %+v, %v", got, err)
		}
		if m, err := figures.Memory(t.Context()); err != nil || m.Node == nil || m.Node.Capacity == 0 {
			t.Errorf("memory %+v, %v", m, err)
		}
		if d, err := figures.Disks(t.Context()); err != nil || d.Node.Bytes == nil || d.Image.Bytes == nil {
			t.Errorf("disks %+v, %v", d, err)
		}
		if p, err := figures.Processes(t.Context()); err != nil || p.Capacity == 0 {
			t.Errorf("processes %+v, %v", p, err)
		}
	})
}

// A volume with a limit is measured anew while Run runs, and the others are not.
func TestVolumesWithALimitAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pressure.StatsConfig) {
			c.Volumes = volumes{
				{Name: "scratch", Ephemeral: true, Usage: volumemgr.Usage{Used: 10, At: time.Now()}},
				{Name: "free", Ephemeral: true, Usage: volumemgr.Usage{Used: 10, At: time.Now()}},
			}
		})
		defer r.rt.Kill(r.id)
		pod := web()
		empty := func(name string, limit *resource.Quantity) v1.Volume {
			return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: limit}}}
		}
		pod.Spec.Volumes = []v1.Volume{empty("scratch", new(resource.MustParse("16Ki"))), empty("free", nil)}
		r.host.SetPods(pod)
		for _, v := range []string{"scratch", "free"} {
			dir := filepath.Join(r.host.Dir(pod.UID), "volumes", "kubernetes.io~empty-dir", v)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "much"), make([]byte, 64<<10), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stop := testrun.Start(t, r.Run)
		synctest.Wait()
		used := func() map[string]int64 {
			out := map[string]int64{}
			got, err := r.ForEviction().Pods(t.Context(), []*v1.Pod{pod}, eviction.WantDisk)
			if err != nil || got[pod.UID] == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			for _, v := range got[pod.UID].Volumes {
				out[v.Name] = v.Used.Bytes
			}
			return out
		}
		if u := used(); u["scratch"] != 10 {
			t.Errorf("%v: measured anew though that was just done", u)
		}
		time.Sleep(6 * time.Second)
		if u := used(); u["scratch"] < 64<<10 || u["free"] != 10 {
			t.Errorf("%v, want 64 KiB of scratch, and 10 bytes of free as they were known", u)
		}
		stop()
	})
}

// A part is of one agent, and all that a Config lacks is said at once.
func TestStatsNewAndJoin(t *testing.T) {
	_, err := pressure.NewStats(pressure.StatsConfig{})
	for _, want := range []string{"NodeName", "Runtime", "Images"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+want+" is required") {
			t.Errorf("%v, want it to name %s", err, want)
		}
	}
	reg := prometheus.NewRegistry()
	r := newRig(t, func(c *pressure.StatsConfig) { c.Metrics = reg })
	if err := r.Join(agenttest.NewHost(t)); err == nil {
		t.Error("joined a second agent")
	}
	m := measured{critest.New(), ""}
	p, err := pressure.NewStats(pressure.StatsConfig{NodeName: "n1", Runtime: m, Images: m, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(agenttest.NewHost(t)); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}
