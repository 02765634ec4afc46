package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// of makes a reader of cgroups with these files.
func of(t *testing.T, files map[string]string) *Reader {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(Config{Root: dir, Mountpoint: "/data"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var v1 = map[string]string{
	"memory/p/c/cgroup.procs":                             "",
	"memory/p/c/memory.usage_in_bytes":                    "1000\n",
	"memory/p/c/memory.max_usage_in_bytes":                "2000\n",
	"memory/p/c/memory.limit_in_bytes":                    "5000\n",
	"memory/p/c/memory.memsw.limit_in_bytes":              "6000\n",
	"memory/p/c/memory.failcnt":                           "3\n",
	"memory/p/c/memory.kmem.usage_in_bytes":               "77\n",
	"memory/p/c/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	"memory/p/c/memory.stat":                              "cache 1\ntotal_rss 300\ntotal_cache 400\ntotal_mapped_file 50\ntotal_inactive_file 250\ntotal_swap 70\npgfault 8\npgmajfault 9\ntotal_pgfault 8\ntotal_pgmajfault 9\n",
	"cpuacct/p/c/cpuacct.usage":                           "3000000000\n",
	"cpuacct/p/c/cpuacct.stat":                            "user 100\nsystem 200\n",
	"cpu/p/c/cpu.stat":                                    "nr_periods 10\nnr_throttled 4\nthrottled_time 5000000000\n",
	"cpu/p/c/cpu.shares":                                  "512\n",
	"cpu/p/c/cpu.cfs_quota_us":                            "-1\n",
	"cpu/p/c/cpu.cfs_period_us":                           "100000\n",
	"pids/p/c/pids.current":                               "7\n",
	"pids/p/c/pids.max":                                   "max\n",
	"blkio/p/c/blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\n8:0 Sync 1\n8:0 Total 30\nTotal 30\n",
	"blkio/p/c/blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
}

var v2 = map[string]string{
	"cgroup.controllers":      "cpu memory\n",
	"p/c/cgroup.procs":        "",
	"p/c/memory.current":      "1000\n",
	"p/c/memory.peak":         "2000\n",
	"p/c/memory.max":          "5000\n",
	"p/c/memory.swap.current": "70\n",
	"p/c/memory.swap.max":     "1000\n",
	"p/c/memory.events":       "low 0\nhigh 0\nmax 3\noom 5\noom_kill 2\n",
	"p/c/memory.stat":         "anon 300\nfile 400\nfile_mapped 50\ninactive_file 250\nkernel 77\npgfault 8\npgmajfault 9\n",
	"p/c/memory.pressure":     "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	"p/c/cpu.stat":            "usage_usec 3000000\nuser_usec 1000000\nsystem_usec 2000000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5000000\n",
	"p/c/cpu.weight":          "20\n",
	"p/c/cpu.max":             "max 100000\n",
	"p/c/pids.current":        "7\n",
	"p/c/pids.max":            "max\n",
	"p/c/io.stat":             "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
}

// Both hierarchies say the same.
func TestContainer(t *testing.T) {
	for name, files := range map[string]map[string]string{"v1": v1, "v2": v2} {
		t.Run(name, func(t *testing.T) {
			r := of(t, files)
			s, err := r.Container(t.Context(), "/p/c", Layer{})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]uint64{
				"cpu": 3e9, "usage": 1000, "working set": 750, "rss": 300, "available": 4250, "faults": 8, "major faults": 9, "swap": 70, "swap available": 930,
			}
			for what, got := range map[string]*runtimeapi.UInt64Value{
				"cpu": s.Cpu.UsageCoreNanoSeconds, "usage": s.Memory.UsageBytes, "working set": s.Memory.WorkingSetBytes, "rss": s.Memory.RssBytes,
				"available": s.Memory.AvailableBytes, "faults": s.Memory.PageFaults, "major faults": s.Memory.MajorPageFaults,
				"swap": s.Swap.SwapUsageBytes, "swap available": s.Swap.SwapAvailableBytes,
			} {
				if got == nil || got.Value != want[what] {
					t.Errorf("%s = %v; want %d", what, got, want[what])
				}
			}
			for what, at := range map[string]int64{"cpu": s.Cpu.Timestamp, "memory": s.Memory.Timestamp, "swap": s.Swap.Timestamp, "io": s.Io.Timestamp} {
				if at <= 0 {
					t.Errorf("%s has time stamp %d", what, at)
				}
			}
			if s.Cpu.UsageNanoCores != nil {
				t.Error("a rate after the first look")
			}
			if (s.Memory.Psi != nil) != (name == "v2") || name == "v2" && (s.Memory.Psi.Some.Avg60 != 2 || s.Memory.Psi.Some.Total != 4000) {
				t.Errorf("pressure: %v", s.Memory.Psi)
			}
			p, err := r.Pod(t.Context(), "/p/c", "")
			if err != nil || p.Process.ProcessCount.Value != 7 || p.Cpu.UsageCoreNanoSeconds.Value != 3e9 || p.Memory.UsageBytes.Value != 1000 || p.Network != nil {
				t.Errorf("Pod = %v, %v", p, err)
			}
			if p, err := r.Pod(t.Context(), "", ""); err != nil || p.Cpu != nil {
				t.Errorf("Pod without a cgroup = %v, %v", p, err)
			}
		})
	}
}

func TestMetricsAreTheSameOnBoth(t *testing.T) {
	var all []string
	for name, files := range map[string]map[string]string{"v1": v1, "v2": v2} {
		r := of(t, files)
		got, err := r.ContainerMetrics(t.Context(), "/p/c", Layer{}, time.Unix(1000, 0), Labels{"c", "/p/c", "i", "n", "ns", "p"})
		if err != nil {
			t.Fatal(err)
		}
		keys := map[string]int{}
		for _, d := range Descriptors() {
			keys[d.Name] = len(d.LabelKeys)
		}
		var lines []string
		for _, m := range got {
			if keys[m.Name] != len(m.LabelValues) {
				t.Errorf("%s: %q has %d labels; its descriptor %d", name, m.Name, len(m.LabelValues), keys[m.Name])
			}
			if m.Name != "container_last_seen" && m.Name != "container_spec_cpu_shares" {
				lines = append(lines, fmt.Sprintf("%s%s%d", m.Name, m.LabelValues, m.Value.Value))
			}
		}
		if all != nil && !slices.Equal(all, lines) {
			t.Errorf("%s: %s\nnot %s", name, strings.Join(lines, "\n"), strings.Join(all, "\n"))
		}
		all = lines
	}
	for _, want := range []string{
		"container_cpu_usage_seconds_total[c /p/c i n ns p total]3", "container_fs_writes_bytes_total[c /p/c i n ns p 8:0]20",
		"container_spec_memory_limit_bytes[c /p/c i n ns p]5000", "container_start_time_seconds[c /p/c i n ns p]1000",
		"container_memory_failures_total[c /p/c i n ns p pgmajfault hierarchy]9", "container_threads_max[c /p/c i n ns p]0",
		"container_oom_events_total[c /p/c i n ns p]2", "container_memory_kernel_usage[c /p/c i n ns p]77",
		"container_blkio_device_usage_total[c /p/c i n ns p 8:0 8 0 Write]20", "container_processes[c /p/c i n ns p]0",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(all, "\n"))
		}
	}
}

// What processes have open is counted, sockets apart.
func TestOpenFilesAreCounted(t *testing.T) {
	r := of(t, map[string]string{"cgroup.controllers": "", "c/cgroup.procs": fmt.Sprintln(os.Getpid())})
	before := r.open("/c")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if after := r.open("/c"); before.processes != 1 || after.processes != 1 || after.files < before.files+2 || after.sockets != before.sockets+1 {
		t.Errorf("%+v, and with a file and a socket more %+v", before, after)
	}
	if got := r.open("/gone"); got == nil || *got != (opened{}) {
		t.Errorf("of a cgroup that is gone: %+v", got)
	}
	got, err := r.ContainerMetrics(t.Context(), "/c", Layer{Upper: t.TempDir()}, time.Time{}, Labels{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"container_fs_limit_bytes", "container_fs_inodes_total", "container_fs_inodes_free", "container_file_descriptors", "container_sockets"} {
		if !slices.ContainsFunc(got, func(m *runtimeapi.Metric) bool { return m.GetName() == name }) {
			t.Errorf("no %s", name)
		}
	}
}

func TestDescriptorsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Descriptors() {
		if seen[d.Name] || d.Help == "" || len(slices.Compact(slices.Sorted(slices.Values(d.LabelKeys)))) != len(d.LabelKeys) {
			t.Errorf("descriptor %v", d)
		}
		seen[d.Name] = true
	}
}

func TestNoLimitIsNoAvailableMemory(t *testing.T) {
	for name, r := range map[string]*Reader{
		"v1": of(t, map[string]string{
			"memory/c/cgroup.procs": "", "memory/c/memory.usage_in_bytes": "1", "memory/c/memory.limit_in_bytes": "9223372036854771712",
			"memory/c/memory.memsw.limit_in_bytes": "9223372036854771712", "memory/c/memory.stat": "total_swap 0\ntotal_inactive_file 5\n",
		}),
		"v2": of(t, map[string]string{
			"cgroup.controllers": "", "c/cgroup.procs": "", "c/memory.current": "1", "c/memory.max": "max", "c/memory.swap.max": "max", "c/memory.swap.current": "0",
			"c/memory.stat": "inactive_file 5\n",
		}),
	} {
		s, err := r.Container(t.Context(), "/c", Layer{})
		if err != nil || s.Memory.AvailableBytes != nil || s.Swap.SwapAvailableBytes != nil || s.Memory.WorkingSetBytes.Value != 0 {
			b, _ := json.Marshal(s)
			t.Errorf("%s: %s, %v", name, b, err)
		}
		if s.Cpu != nil {
			t.Errorf("%s: CPU figures that are not there: %v", name, s.Cpu)
		}
	}
}

func TestCgroupsOutsideAreRefused(t *testing.T) {
	r := of(t, v2)
	for _, c := range []string{"", "/", "p/c", "/p/../c", "/p//c", "/p/c/", "/..", "/\x00"} {
		_, err := r.Container(t.Context(), "/x", Layer{})
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Container of none: %v", err)
		}
		if err := r.KillCgroup(t.Context(), c); err == nil || !strings.Contains(err.Error(), "clean absolute path") {
			t.Errorf("KillCgroup(%q): %v", c, err)
		}
		if _, err := r.Processes(c); err == nil {
			t.Errorf("Processes(%q) did", c)
		}
	}
}

func TestRate(t *testing.T) {
	r := &Reader{samples: map[string]sample{}}
	t0 := time.Unix(1000, 0)
	for _, step := range []struct {
		after time.Duration
		nanos uint64
		want  int64 // -1 for none
	}{
		{0, 1e9, -1},
		{500 * time.Millisecond, 2e9, -1},   // too soon
		{2 * time.Second, 3e9, 1e9},         // 2 s of CPU in 2 s
		{2500 * time.Millisecond, 9e9, 1e9}, // too soon: the last one
		{4 * time.Second, 3e9, 0},           // idle
		{5 * time.Second, 1e9, -1},          // another cgroup of that name
		{time.Hour, 2e9, -1},                // so long ago that it says nothing
	} {
		got := r.rate("c", t0.Add(step.after), step.nanos)
		if (got == nil) != (step.want < 0) || got != nil && *got != uint64(step.want) {
			t.Errorf("rate after %v = %v; want %d", step.after, got, step.want)
		}
	}
	for i := range maxSamples * 2 {
		r.rate(fmt.Sprint(i), t0, 1)
	}
	if len(r.samples) > maxSamples {
		t.Errorf("%d samples are kept", len(r.samples))
	}
}

func TestWritableLayerIsMeasuredOnceInTenSeconds(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 100000), 0o600); err != nil {
		t.Fatal(err)
	}
	r := of(t, v2)
	s, err := r.Container(t.Context(), "/p/c", Layer{Upper: dir})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); s.WritableLayer == nil; { // a slow machine measures in the background
		if time.Now().After(end) {
			t.Fatal("not measured within a minute")
		}
		if s, err = r.Container(t.Context(), "/p/c", Layer{Upper: dir}); err != nil {
			t.Fatal(err)
		}
	}
	w := s.WritableLayer
	if w.UsedBytes.Value < 100000 || w.InodesUsed.Value < 1 || w.Timestamp <= 0 || w.FsId.Mountpoint != "/data" {
		t.Errorf("%v", w)
	}
	// A figure that is younger is taken, an older one measured again.
	fake := diskusage.Usage{Used: 7, InodesUsed: 1, At: time.Now().Add(time.Hour)}
	r.layers.keep(dir, fake)
	if got := r.layers.measure(t.Context(), Layer{Upper: dir}, "/"); got.UsedBytes.Value != 7 {
		t.Errorf("a young figure was not taken: %v", got)
	}
}

// A layer that takes long is not waited for.
func TestSlowLayerIsMeasuredInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l layers
		walk := make(chan struct{})
		go func() {
			_, _ = l.walks.Do(t.Context(), "/x", func() (diskusage.Usage, error) { <-walk; return diskusage.Usage{}, nil })
		}()
		synctest.Wait()
		begun := time.Now()
		if got := l.measure(t.Context(), Layer{Upper: "/x"}, "/"); got != nil || time.Since(begun) != layerTimeout {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		l.keep("/x", diskusage.Usage{Used: 5, At: time.Now().Add(-time.Hour)})
		if got := l.measure(t.Context(), Layer{Upper: "/x"}, "/"); got.GetUsedBytes().GetValue() != 5 {
			t.Errorf("the last figure was not returned: %v", got)
		}
		close(walk)
	})
}

func TestNetworkOfThePod(t *testing.T) {
	n := criNetwork([]kernel.Interface{{Name: "net1"}, {Name: "eth0", TxErrors: 70}}, time.Unix(1, 0))
	if n.DefaultInterface.Name != "eth0" || n.DefaultInterface.TxErrors.Value != 70 || len(n.Interfaces) != 1 || n.Timestamp != 1e9 {
		t.Errorf("%v", n)
	}
}

func TestInterfacesOfANamespace(t *testing.T) {
	plugintest.RequireMounts(t)
	path := filepath.Join(t.TempDir(), "net")
	if err := nspin.MakePoint(path); err != nil {
		t.Fatal(err)
	}
	c, err := nspin.StartChild(t.Context(), nil, unix.CLONE_NEWNET)
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	f, err := c.Open("net")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := nspin.Bind(f, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	r := of(t, v2)
	p, err := r.Pod(t.Context(), "", path)
	if err != nil || p.Network == nil || p.Network.Timestamp <= 0 || p.Network.DefaultInterface.GetName() == "eth0" {
		t.Errorf("Pod = %v, %v", p, err)
	}
	if _, err := r.Pod(t.Context(), "", filepath.Join(path, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Pod of no namespace: %v", err)
	}
}
