package stats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/node/stats"
)

func n(v uint64) *uint64 { return &v }

// oom.tree writes files under a directory.
func tree(fsys fstest.MapFS, dir string, files map[string]string) {
	for name, text := range files {
		fsys[strings.TrimPrefix(dir+"/"+name, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
}

const psi = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n"

func v2(fsys fstest.MapFS, dir string, usec, current int) {
	tree(fsys, dir, map[string]string{
		"cpu.stat":            fmt.Sprintf("usage_usec %d\nuser_usec 1\nsystem_usec 1\n", usec),
		"memory.current":      fmt.Sprint(current),
		"memory.stat":         "anon 300\nfile 200\ninactive_file 100\npgfault 7\npgmajfault 2\n",
		"memory.max":          "max\n",
		"memory.swap.current": "50\n", "memory.swap.max": "150\n",
		"pids.current": "3\n", "cpu.pressure": psi, "memory.pressure": psi, "io.pressure": psi, "cgroup.procs": "77\n78\n",
	})
}

// statsNode is a machine of files.
type statsNode struct {
	cgroups, proc, root fstest.MapFS
	runtime             *runtime
	cfg                 stats.Config
}

type runtime struct {
	sandboxes  []stats.Sandbox
	containers []stats.Container
	images     []stats.Filesystem
	layers     []stats.Filesystem
	err        error
	calls      atomic.Int64
	measured   atomic.Int64 // times that it was asked what containers use
	delay      time.Duration
}

func (r *runtime) Sandboxes(ctx context.Context) ([]stats.Sandbox, error) {
	r.calls.Add(1)
	if r.delay > 0 {
		select {
		case <-time.After(r.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r.sandboxes, r.err
}

func (r *runtime) Containers(_ context.Context, measured bool) ([]stats.Container, error) {
	if measured {
		r.measured.Add(1)
	}
	return r.containers, r.err
}

func (r *runtime) Filesystems(context.Context) (images, containers []stats.Filesystem, err error) {
	return r.images, r.layers, r.err
}

type volumes map[types.UID][]stats.Volume

func (v volumes) Stats(_ context.Context, pod types.UID) ([]stats.Volume, error) {
	if pod == "broken" {
		return nil, errors.New("server is gone")
	}
	return v[pod], nil
}

func volume(name, claim string, used uint64, own bool) stats.Volume {
	v := stats.Volume{Ephemeral: own}
	v.Name, v.UsedBytes = name, n(used)
	if claim != "" {
		v.PVCRef = &statsapi.PVCReference{Name: claim, Namespace: "ns"}
	}
	return v
}

func newNode() *statsNode {
	m := &statsNode{cgroups: fstest.MapFS{}, proc: fstest.MapFS{}, root: fstest.MapFS{}}
	tree(m.proc, "", map[string]string{
		"meminfo": "MemTotal:        1000 kB\nMemFree:          400 kB\nInactive(file):   100 kB\nAnonPages:   200 kB\nSwapTotal:  100 kB\nSwapFree:   40 kB\n",
		"stat":    "cpu  100 0 100 5000 5 0 0 0 0 0\nbtime 1700000000\n", "loadavg": "0.5 0.5 0.5 2/345 999\n",
		"sys/kernel/pid_max": "4194304\n", "sys/kernel/threads-max": "1000\n",
		"net/dev":      "h\nh\n lo: 1 0 0 0 0 0 0 0 1 0 0\n eth0: 10 0 1 0 0 0 0 0 20 0 2 0 0 0 0 0\n",
		"77/net/dev":   "h\nh\n eth0: 30 0 0 0 0 0 0 0 40 0 0 0 0 0 0 0\n",
		"pressure/cpu": psi,
	})
	tree(m.cgroups, "", map[string]string{"cgroup.controllers": "cpu memory pids\n", "cpu.stat": "usage_usec 9000\n"})
	v2(m.cgroups, "kubepods", 5000, 700)
	v2(m.cgroups, "kubepods/burstable/podu1", 3000, 600)
	v2(m.cgroups, "kubepods/burstable/podu1/c1", 2000, 500)
	v2(m.cgroups, "kubepods/burstable/podu1/s1", 10, 10)
	tree(m.root, "var/log/pods/ns_web_u1/app", map[string]string{"0.log": "12345", "0.log.20260101": "123"})
	tree(m.root, "var/log/pods/ns_web_u1", map[string]string{"note": "1"})
	tree(m.root, "var/lib/kubelet/pods/u1", map[string]string{"etc-hosts": "127.0.0.1"})
	tree(m.root, "var/lib/kubelet/pods/u1/containers/app", map[string]string{"termination-log-0": "bye", "termination-log-1": "1"})
	started := time.Unix(1700000100, 0)
	m.runtime = &runtime{
		sandboxes: []stats.Sandbox{{ID: "s1", UID: "u1", Name: "web", Namespace: "ns", Ready: true, CreatedAt: started}},
		containers: []stats.Container{{ID: "c1", Name: "app", SandboxID: "s1", Running: true, StartedAt: started,
			Layer: &stats.Filesystem{Mountpoint: "/images", Used: n(1000), InodesUsed: n(10)}}},
		images: []stats.Filesystem{{Mountpoint: "/images", Used: n(5000), InodesUsed: n(50)}},
	}
	m.cfg = stats.Config{NodeName: "edge", Runtime: m.runtime, Cgroups: m.cgroups, Proc: m.proc, Root: m.root,
		Volumes: volumes{"u1": {volume("scratch", "", 100, true), volume("data", "claim", 7000, false)}, "u2": {volume("same", "claim", 7000, false)}},
		Statfs: func(path string) (stats.Disk, error) {
			switch path {
			case "/images":
				return stats.Disk{Device: 2, Capacity: 1e6, Available: 4e5, Free: 5e5, Inodes: 100, InodesFree: 40}, nil
			case "/layers":
				return stats.Disk{Device: 3, Capacity: 3e6}, nil
			case "/var/lib/kubelet":
				return stats.Disk{Device: 1, Capacity: 2e6, Available: 1e6, Free: 11e5, Inodes: 1000, InodesFree: 900}, nil
			}
			return stats.Disk{}, errors.New("no such file system")
		}}
	return m
}

func (m *statsNode) manager(t testing.TB) *stats.Collector {
	t.Helper()
	s, err := stats.New(m.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// is compares numbers that may not be known.
func is(t *testing.T, what string, got *uint64, want any) {
	t.Helper()
	switch w := want.(type) {
	case nil:
		if got != nil {
			t.Errorf("%s is %d; want it unknown", what, *got)
		}
	case int:
		if got == nil || *got != uint64(w) {
			t.Errorf("%s is %v; want %d", what, got, w)
			if got != nil {
				t.Logf("that is %d", *got)
			}
		}
	}
}

func TestSummaryV2(t *testing.T) {
	s, err := newNode().manager(t).Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node := s.Node
	if node.NodeName != "edge" || node.StartTime.Unix() != 1700000000 {
		t.Errorf("node %s, up since %v", node.NodeName, node.StartTime)
	}
	is(t, "node cpu", node.CPU.UsageCoreNanoSeconds, 9000*1000)
	is(t, "node rate", node.CPU.UsageNanoCores, nil)
	is(t, "node memory", node.Memory.UsageBytes, 600<<10)
	is(t, "node working set", node.Memory.WorkingSetBytes, 500<<10)
	is(t, "node available", node.Memory.AvailableBytes, 500<<10)
	is(t, "node rss", node.Memory.RSSBytes, 200<<10)
	is(t, "node swap", node.Swap.SwapUsageBytes, 60<<10)
	is(t, "node swap available", node.Swap.SwapAvailableBytes, 40<<10)
	is(t, "node network", node.Network.RxBytes, 10)
	is(t, "node send errors", node.Network.TxErrors, 2)
	is(t, "node fs used", node.Fs.UsedBytes, 9e5)
	is(t, "image fs used", node.Runtime.ImageFs.UsedBytes, 5000)
	is(t, "image fs available", node.Runtime.ImageFs.AvailableBytes, 4e5)
	if *node.Rlimit.MaxPID != 1000 || *node.Rlimit.NumOfRunningProcesses != 345 || node.CPU.PSI.Some.Avg60 != 2 {
		t.Errorf("limits %+v, pressure %+v", node.Rlimit, node.CPU.PSI)
	}
	if node.Runtime.ContainerFs != node.Runtime.ImageFs {
		t.Error("containers have a file system of their own")
	}
	if sys := node.SystemContainers; len(sys) != 1 || sys[0].Name != "pods" {
		t.Fatalf("system containers %+v", sys)
	}
	is(t, "pods' memory", node.SystemContainers[0].Memory.WorkingSetBytes, 600)

	if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 {
		t.Fatalf("pods %+v", s.Pods)
	}
	pod := s.Pods[0]
	is(t, "pod cpu", pod.CPU.UsageCoreNanoSeconds, 3000*1000)
	is(t, "pod memory", pod.Memory.WorkingSetBytes, 500)
	is(t, "pod tasks", pod.ProcessStats.ProcessCount, 3)
	is(t, "pod network", pod.Network.TxBytes, 40)
	// The layer, the container's logs, the pod's, the scratch volume, etc-hosts,
	// termination messages.
	is(t, "pod storage", pod.EphemeralStorage.UsedBytes, 1000+8+1+100+9+4)
	is(t, "pod storage inodes", pod.EphemeralStorage.InodesUsed, 10+2+1+1+2)
	is(t, "pod storage capacity", pod.EphemeralStorage.CapacityBytes, 2e6)
	if len(pod.VolumeStats) != 2 || pod.VolumeStats[1].PVCRef.Name != "claim" {
		t.Errorf("volumes %+v", pod.VolumeStats)
	}
	c := pod.Containers[0]
	is(t, "memory", c.Memory.UsageBytes, 500)
	is(t, "working set", c.Memory.WorkingSetBytes, 400)
	is(t, "available", c.Memory.AvailableBytes, nil)
	is(t, "faults", c.Memory.MajorPageFaults, 2)
	is(t, "swap available", c.Swap.SwapAvailableBytes, 100)
	is(t, "rootfs", c.Rootfs.UsedBytes, 1000)
	is(t, "rootfs capacity", c.Rootfs.CapacityBytes, 1e6)
	is(t, "logs", c.Logs.UsedBytes, 8)
	if c.IO.PSI.Full.Total != 1000000 {
		t.Errorf("io pressure %+v", c.IO.PSI)
	}
}

func TestSummaryV1(t *testing.T) {
	m := newNode()
	for name := range m.cgroups {
		delete(m.cgroups, name)
	}
	const pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice"
	for _, dir := range []string{"kubepods.slice", pod, pod + "/cri-containerd-c1.scope"} {
		tree(m.cgroups, "cpuacct/"+dir, map[string]string{"cpuacct.usage": "77\n"})
		tree(m.cgroups, "pids/"+dir, map[string]string{"pids.current": "5\n"})
		tree(m.cgroups, "memory/"+dir, map[string]string{
			"memory.usage_in_bytes": "1000\n", "memory.limit_in_bytes": "9223372036854771712\n", "memory.memsw.limit_in_bytes": "9223372036854771712\n",
			"memory.stat": "cache 1\nrss 1\ninactive_file 1\npgfault 1\ntotal_rss 400\ntotal_inactive_file 300\ntotal_pgfault 9\ntotal_swap 20\n",
		})
	}
	tree(m.cgroups, "memory/"+pod, map[string]string{"memory.limit_in_bytes": "2000\n", "memory.memsw.limit_in_bytes": "2500\n"})
	m.cfg.PodsCgroup = "/kubepods.slice"
	s, err := m.manager(t).Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, c := s.Pods[0], s.Pods[0].Containers[0]
	is(t, "pod available", p.Memory.AvailableBytes, 1300)
	is(t, "pod swap", p.Swap.SwapUsageBytes, 20)
	is(t, "pod swap available", p.Swap.SwapAvailableBytes, 480)
	is(t, "pod tasks", p.ProcessStats.ProcessCount, 5)
	is(t, "cpu", c.CPU.UsageCoreNanoSeconds, 77)
	is(t, "working set", c.Memory.WorkingSetBytes, 700)
	is(t, "available", c.Memory.AvailableBytes, nil)
	is(t, "faults", c.Memory.PageFaults, 1)
	is(t, "swap available", c.Swap.SwapAvailableBytes, nil)
	if c.IO != nil || *c.CPU.PSI != (statsapi.PSIStats{}) || *c.Memory.PSI != (statsapi.PSIStats{}) {
		t.Error("cgroup v1 has no pressure; want 0, and no io")
	}
	is(t, "node cpu", s.Node.CPU.UsageCoreNanoSeconds, 2e9) // of /proc/stat
}

func TestOddities(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*statsNode)
		err  string // in the error; "" for none
		look func(*testing.T, *statsapi.Summary)
	}{
		{"no cgroup of the container, numbers of the runtime", func(m *statsNode) {
			delete(m.cgroups, "kubepods/burstable/podu1/c1/cpu.stat")
			m.runtime.containers[0].Usage = &stats.Usage{CPU: n(5), CPURate: n(6), WorkingSet: n(7)}
		}, "", func(t *testing.T, s *statsapi.Summary) {
			is(t, "rate", s.Pods[0].Containers[0].CPU.UsageNanoCores, 6)
			is(t, "working set", s.Pods[0].Containers[0].Memory.WorkingSetBytes, 7)
		}},
		{"no numbers at all", func(m *statsNode) { delete(m.cgroups, "kubepods/burstable/podu1/c1/cpu.stat") }, "", func(t *testing.T, s *statsapi.Summary) {
			c := s.Pods[0].Containers[0].CPU
			is(t, "cpu", c.UsageCoreNanoSeconds, 0)
			if time.Since(c.Time.Time) > time.Minute {
				t.Errorf("time %v", c.Time)
			}
		}},
		{"no cgroup of the pod", func(m *statsNode) { delete(m.cgroups, "kubepods/burstable/podu1/cpu.stat") }, "", func(t *testing.T, s *statsapi.Summary) {
			is(t, "sum", s.Pods[0].CPU.UsageCoreNanoSeconds, 2000*1000)
			if s.Pods[0].ProcessStats != nil || s.Pods[0].CPU.PSI != nil {
				t.Error("tasks and pressure cannot be known")
			}
		}},
		{"unknown file system of layers", func(m *statsNode) { m.runtime.containers[0].Layer.Mountpoint = "/nowhere" }, "", func(t *testing.T, s *statsapi.Summary) {
			is(t, "rootfs", s.Pods[0].Containers[0].Rootfs.UsedBytes, 1000)
			is(t, "capacity", s.Pods[0].Containers[0].Rootfs.CapacityBytes, nil)
		}},
		{"no layer: logs count nevertheless", func(m *statsNode) { m.runtime.containers[0].Layer = nil }, "", func(t *testing.T, s *statsapi.Summary) {
			is(t, "storage", s.Pods[0].EphemeralStorage.UsedBytes, 8+1+100+9+4)
		}},
		{"no image file system", func(m *statsNode) { m.runtime.images = nil }, "file systems of the runtime", func(t *testing.T, s *statsapi.Summary) {
			is(t, "working set", s.Node.Memory.WorkingSetBytes, 500<<10)
		}},
		{"containers elsewhere", func(m *statsNode) { m.runtime.layers = []stats.Filesystem{{Mountpoint: "/layers", Used: n(9)}} }, "", func(t *testing.T, s *statsapi.Summary) {
			is(t, "containers", s.Node.Runtime.ContainerFs.UsedBytes, 9)
			is(t, "images", s.Node.Runtime.ImageFs.UsedBytes, 5000)
		}},
		{"the runtime fails, the node is still known", func(m *statsNode) { m.runtime.err = errors.New("runtime is gone") }, "runtime is gone", func(t *testing.T, s *statsapi.Summary) {
			is(t, "working set", s.Node.Memory.WorkingSetBytes, 500<<10)
			is(t, "node fs", s.Node.Fs.AvailableBytes, 1e6)
			if len(s.Node.SystemContainers) != 1 {
				t.Error("no pods' cgroup")
			}
		}},
		{"a pod's volumes fail, others are known", func(m *statsNode) {
			m.runtime.sandboxes = append(m.runtime.sandboxes, stats.Sandbox{ID: "s2", UID: "broken", Name: "b", Namespace: "ns"})
		}, "volumes of ns/b", func(t *testing.T, s *statsapi.Summary) {
			if len(s.Pods) != 2 || s.Pods[0].PodRef.Name != "b" || s.Pods[0].VolumeStats != nil || len(s.Pods[1].VolumeStats) != 2 {
				t.Errorf("pods %+v", s.Pods)
			}
		}},
		{"a sandbox without processes", func(m *statsNode) {
			for name := range m.cgroups {
				if strings.Contains(name, "/s1/") {
					delete(m.cgroups, name)
				}
			}
		}, "", func(t *testing.T, s *statsapi.Summary) {
			if s.Pods[0].Network == nil {
				t.Fatal("no network")
			}
			is(t, "received", s.Pods[0].Network.RxBytes, 30)
		}},
		{"host network", func(m *statsNode) { m.runtime.sandboxes[0].HostNetwork = true }, "", func(t *testing.T, s *statsapi.Summary) {
			if s.Pods[0].Network != nil {
				t.Error("the node's network is told as the pod's")
			}
		}},
		{"no pressure, no swap, no limit file", func(m *statsNode) {
			for name := range m.cgroups {
				if strings.HasSuffix(name, "pressure") || strings.Contains(name, "swap") || strings.HasSuffix(name, "memory.max") {
					delete(m.cgroups, name)
				}
			}
		}, "", func(t *testing.T, s *statsapi.Summary) {
			if p := s.Pods[0]; *p.CPU.PSI != (statsapi.PSIStats{}) || p.IO != nil || p.Swap != nil {
				t.Errorf("%+v", p)
			}
		}},
		{"files of nonsense", func(m *statsNode) {
			for _, f := range m.cgroups {
				f.Data = []byte("\x00max -1 some avg10=\n")
			}
		}, "", func(t *testing.T, s *statsapi.Summary) { is(t, "cpu", s.Pods[0].CPU.UsageCoreNanoSeconds, 0) }},
		{"no pods' cgroup", func(m *statsNode) { m.cfg.PodsCgroup = "/elsewhere" }, "cgroup of pods", func(t *testing.T, s *statsapi.Summary) {
			is(t, "working set", s.Node.Memory.WorkingSetBytes, 500<<10)
		}},
		{"nothing of /proc", func(m *statsNode) { m.cfg.Proc = fstest.MapFS{} }, "boot time", func(t *testing.T, s *statsapi.Summary) {
			is(t, "pod memory", s.Pods[0].Memory.WorkingSetBytes, 500)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newNode()
			tt.set(m)
			s, err := m.manager(t).Summary(t.Context())
			if s == nil || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%v, %v; want %q", s != nil, err, tt.err)
			}
			tt.look(t, s)
		})
	}
}

func TestSmallSummary(t *testing.T) {
	s, err := newNode().manager(t).CPUAndMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Node.Fs != nil || s.Node.Network != nil || s.Node.Rlimit != nil || s.Pods[0].VolumeStats != nil || s.Pods[0].EphemeralStorage != nil || s.Pods[0].Containers[0].Logs != nil {
		t.Errorf("more than processor and memory: %+v", s)
	}
	is(t, "pod memory", s.Pods[0].Memory.WorkingSetBytes, 500)
}

// Those who ask together share one answer. An answer that is too old for one of them is made anew.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNode()
		m.runtime.delay = 2 * time.Second
		s := m.manager(t)
		var wg sync.WaitGroup
		ask := func(ctx context.Context, ok bool) {
			wg.Go(func() {
				if got, err := s.Summary(ctx); (got != nil && err == nil) != ok {
					t.Errorf("answer %v, %v", got != nil, err)
				}
			})
			synctest.Wait()
		}
		first, cancel := context.WithCancel(t.Context())
		ask(first, false)
		for range 50 {
			ask(t.Context(), true)
		}
		short, cancelShort := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancelShort()
		ask(short, false) // does not wait for others
		time.Sleep(time.Second)
		cancel() // whoever reads goes away: another one begins again
		wg.Wait()
		if calls := m.runtime.calls.Load(); calls != 2 {
			t.Errorf("%d questions to the runtime; want 2", calls)
		}
		time.Sleep(time.Second)
		ask(t.Context(), true)
		time.Sleep(1500 * time.Millisecond)
		ask(t.Context(), true) // what is read now began too long before
		ask(t.Context(), true)
		wg.Wait()
		if calls := m.runtime.calls.Load(); calls != 4 {
			t.Errorf("%d questions to the runtime; want 4", calls)
		}
	})
}

// A file system that hangs costs a deadline, and one goroutine for good.
func TestStatfsHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNode()
		hung, asked := make(chan struct{}), atomic.Int64{}
		m.cfg.Statfs = func(string) (stats.Disk, error) {
			asked.Add(1)
			<-hung
			return stats.Disk{}, nil
		}
		m.runtime.images[0].Mountpoint = "/var/lib/kubelet"
		s := m.manager(t)
		for range 3 {
			if _, err := s.Disks(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			all, err := s.Totals(t.Context())
			if err != nil || all.Node.Fs != nil {
				t.Errorf("file system %+v, %v", all.Node.Fs, err)
			}
			is(t, "working set", all.Node.Memory.WorkingSetBytes, 500<<10)
		}
		if asked.Load() != 1 {
			t.Errorf("asked %d times while the first hangs", asked.Load())
		}
		close(hung)
	})
}

func TestMetrics(t *testing.T) {
	m := newNode()
	m.runtime.sandboxes = append(m.runtime.sandboxes, stats.Sandbox{ID: "s2", UID: "u2", Name: "other", Namespace: "ns"})
	s := m.manager(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s.ResourceMetrics(), s.VolumeMetrics(), s.LogMetrics())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, l := range metric.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			if f.GetName() == "pod_memory_working_set_bytes" && metric.GetTimestampMs() == 0 {
				t.Error("no time of its own")
			}
		}
	}
	for name, want := range map[string]float64{
		"node_cpu_usage_seconds_total": 0.009, "node_memory_working_set_bytes": 500 << 10, "node_swap_usage_bytes": 60 << 10,
		"container_cpu_usage_seconds_total app ns web": 0.002, "container_memory_working_set_bytes app ns web": 400,
		"container_swap_usage_bytes app ns web": 50, "container_swap_limit_bytes app ns web": 150,
		"container_start_time_seconds app ns web": 1700000100, "pod_cpu_usage_seconds_total ns web": 0.003,
		"pod_memory_working_set_bytes ns web": 500, "pod_swap_usage_bytes ns web": 50,
		"resource_scrape_error": 0, "scrape_error": 0,
		"container_pressure_cpu_waiting_seconds_total app ns web": 4, "container_pressure_io_stalled_seconds_total app ns web": 1,
		"kubelet_volume_stats_used_bytes ns claim":                  7000,
		"kubelet_container_log_filesystem_used_bytes app ns web u1": 8,
	} {
		if v, ok := got[name]; !ok || v < want-1e-9 || v > want+1e-9 {
			t.Errorf("%s is %v (%v); want %v", name, v, ok, want)
		}
	}
}

func TestNewTellsAllMistakes(t *testing.T) {
	_, err := stats.New(stats.Config{})
	for _, field := range []string{"NodeName", "Runtime"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}

func ExampleCollector_Summary() {
	m := newNode() // a machine of files
	s, err := stats.New(stats.Config{NodeName: "edge", Runtime: m.runtime, Cgroups: m.cgroups, Proc: m.proc, Root: m.root, Statfs: m.cfg.Statfs})
	if err != nil {
		fmt.Println(err)
		return
	}
	summary, err := s.Summary(context.Background())
	if err != nil {
		fmt.Println("not all is known:", err)
	}
	for _, pod := range summary.Pods {
		fmt.Printf("%s uses %d bytes of memory and waited %.0f s for the disk\n", pod.PodRef.Name, *pod.Memory.WorkingSetBytes, float64(pod.IO.PSI.Some.Total)/1e6)
	}
	// Output: web uses 500 bytes of memory and waited 4 s for the disk
}
