package stats_test

import (
	"errors"
	"math"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/node/stats"
)

// What eviction decides by comes from files alone.
func TestMemoryNeedsNoRuntime(t *testing.T) {
	m := newNode()
	m.runtime.err = errors.New("runtime is away")
	s := m.manager(t)
	node, pods, err := s.Memory()
	if err != nil {
		t.Fatal(err)
	}
	is(t, "working set", node.WorkingSet, 500<<10)
	is(t, "limit", node.MemoryLimit, 1000<<10)
	is(t, "pods", pods.WorkingSet, 600)
	if *pods.MemoryLimit != math.MaxUint64 {
		t.Errorf("limit of pods %d; want none", *pods.MemoryLimit)
	}
	use, err := s.PodUsages(func(uid types.UID) bool { return uid == "u1" })
	if err != nil || len(use) != 1 {
		t.Fatalf("pods %v, %v", use, err)
	}
	is(t, "pod", use["u1"].WorkingSet, 500)
	is(t, "tasks", use["u1"].Tasks, 3)
	is(t, "container", use["u1"].Containers["c1"].WorkingSet, 400)
	if none, err := s.PodUsages(func(types.UID) bool { return false }); err != nil || len(none) != 0 {
		t.Errorf("unwanted pods %v, %v", none, err)
	}
	if l, err := s.Threads(); err != nil || *l.MaxPID != 1000 || *l.NumOfRunningProcesses != 345 {
		t.Errorf("threads %+v, %v", l, err)
	}
	if n := m.runtime.calls.Load() + m.runtime.measured.Load(); n != 0 {
		t.Errorf("%d questions to the runtime; want none", n)
	}
}

// A history asks for totals twice a minute, on a full node, whatever the runtime does.
func TestTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newNode()
		m.runtime.err = errors.New("runtime is away")
		s := m.manager(t)
		if _, err := s.Totals(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		v2(m.cgroups, "kubepods/burstable/podu1", 3000+1e6, 600) // half a CPU
		all, err := s.Totals(t.Context())
		if err != nil || len(all.Pods) != 1 || all.Pods[0].PodRef.UID != "u1" {
			t.Fatalf("pods %+v, %v", all.Pods, err)
		}
		is(t, "CPU", all.Pods[0].CPU.UsageNanoCores, 5e8)
		is(t, "working set", all.Pods[0].Memory.WorkingSetBytes, 500)
		is(t, "the node's working set", all.Node.Memory.WorkingSetBytes, 500<<10)
		is(t, "disk", all.Node.Fs.AvailableBytes, 1e6)
		is(t, "network", all.Node.Network.RxBytes, 10)
		delete(m.cgroups, "kubepods/burstable/podu1/cpu.stat")
		if all, err := s.Totals(t.Context()); err != nil || len(all.Pods) != 0 {
			t.Errorf("a pod that is removed: %+v, %v", all.Pods, err)
		}
		clear(m.cgroups)
		if all, err := s.Totals(t.Context()); err == nil || all == nil {
			t.Errorf("without the cgroup of pods: %+v, %v", all, err)
		}
	})
}

func TestTotalsWithoutCgroups(t *testing.T) {
	m := newNode()
	m.cfg.PodsCgroup = "-"
	m.runtime.containers[0].Usage = &stats.Usage{WorkingSet: n(77)}
	all, err := m.manager(t).Totals(t.Context())
	if err != nil || len(all.Pods) != 1 {
		t.Fatalf("%+v, %v", all.Pods, err)
	}
	is(t, "pod", all.Pods[0].Memory.WorkingSetBytes, 77)
}

func TestMemoryV1(t *testing.T) {
	m := newNode()
	fsys := fstest.MapFS{}
	tree(fsys, "memory", map[string]string{"memory.usage_in_bytes": "5000\n", "memory.stat": "total_inactive_file 1000\n"})
	tree(fsys, "memory/kubepods", map[string]string{
		"memory.usage_in_bytes": "900\n", "memory.stat": "total_inactive_file 100\n", "memory.limit_in_bytes": "2000\n",
	})
	m.cfg.Cgroups = fsys
	node, pods, err := m.manager(t).Memory()
	if err != nil {
		t.Fatal(err)
	}
	is(t, "node", node.WorkingSet, 4000)
	is(t, "pods", pods.WorkingSet, 800)
	is(t, "limit of pods", pods.MemoryLimit, 2000)
}

// What is missing is not known, and hides nothing else.
func TestMemoryIsMissing(t *testing.T) {
	m := newNode()
	delete(m.cgroups, "kubepods/memory.current")
	delete(m.cgroups, "kubepods/cpu.stat")
	if node, pods, err := m.manager(t).Memory(); err == nil || node == nil || pods != nil {
		t.Errorf("node %v, pods %v, %v", node, pods, err)
	}
	m = newNode()
	delete(m.proc, "meminfo")
	if node, pods, err := m.manager(t).Memory(); err == nil || node != nil || pods == nil {
		t.Errorf("node %v, pods %v, %v", node, pods, err)
	}
}

func TestDisks(t *testing.T) {
	m := newNode()
	m.runtime.layers = []stats.Filesystem{{Mountpoint: "/layers"}}
	d, err := m.manager(t).Disks(t.Context())
	if err != nil || d.Node.Device != 1 || d.Images.Device != 2 || d.Containers.Device != 3 || d.Images.Available != 4e5 {
		t.Errorf("disks %+v, %v", d, err)
	}
	m.runtime.layers = m.runtime.images
	if d, err = m.manager(t).Disks(t.Context()); err != nil || d.Containers != nil {
		t.Errorf("the same for containers: %+v, %v", d, err)
	}
	m.runtime.layers[0].Mountpoint = "/gone"
	if d, err = m.manager(t).Disks(t.Context()); err == nil || d.Node == nil || d.Images != nil {
		t.Errorf("unknown mount point: %+v, %v", d, err)
	}
	for _, images := range [][]stats.Filesystem{nil, {}} {
		m.runtime.images = images
		if d, err = m.manager(t).Disks(t.Context()); err == nil || d.Node == nil {
			t.Errorf("without image file systems: %+v, %v", d, err)
		}
	}
}

func TestPodsByWish(t *testing.T) {
	m := newNode()
	m.runtime.sandboxes = append(m.runtime.sandboxes, stats.Sandbox{ID: "s2", UID: "u2", Name: "other", Namespace: "ns", Ready: true})
	pods, err := m.manager(t).Pods(t.Context(), func(uid types.UID) bool { return uid == "u1" })
	if err != nil || len(pods) != 1 || pods[0].PodRef.UID != "u1" {
		t.Fatalf("pods %+v, %v", pods, err)
	}
	is(t, "storage", pods[0].EphemeralStorage.UsedBytes, 1000+8+1+100+9+4)
}

// The runtime is asked what containers use only where cgroups do not tell.
func TestMeasuredWhenNeeded(t *testing.T) {
	m := newNode()
	if _, err := m.manager(t).CPUAndMemory(t.Context()); err != nil || m.runtime.measured.Load() != 0 {
		t.Errorf("measured %d times, %v", m.runtime.measured.Load(), err)
	}
	m = newNode()
	m.cfg.PodsCgroup = "-"
	m.runtime.containers[0].Usage = &stats.Usage{WorkingSet: n(77)}
	s, err := m.manager(t).CPUAndMemory(t.Context())
	if err != nil || m.runtime.measured.Load() != 1 || len(s.Node.SystemContainers) != 0 {
		t.Fatalf("measured %d times, %v, %+v", m.runtime.measured.Load(), err, s.Node.SystemContainers)
	}
	is(t, "container", s.Pods[0].Containers[0].Memory.WorkingSetBytes, 77)
	is(t, "pod", s.Pods[0].Memory.WorkingSetBytes, 77)
}

// Of two pods with one name the newer one is told: two of the same series
// would fail the whole scrape.
func TestMetricsOfReplacedPod(t *testing.T) {
	m := newNode()
	older := m.runtime.sandboxes[0]
	older.ID, older.UID, older.CreatedAt = "s0", "u0", older.CreatedAt.Add(-1)
	m.runtime.sandboxes = append(m.runtime.sandboxes, older)
	v2(m.cgroups, "kubepods/podu0", 1, 9999)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m.manager(t).ResourceMetrics())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "pod_memory_working_set_bytes" && (len(f.GetMetric()) != 1 || f.GetMetric()[0].GetGauge().GetValue() != 500) {
			t.Errorf("told %v", f)
		}
	}
}
