package usage_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/nodeagent/internal/usage"
)

type summaries struct {
	sum *statsapi.Summary
	err error
}

func (s *summaries) Summary(context.Context, bool) (*statsapi.Summary, error) { return s.sum, s.err }

type details map[usage.Key]usage.Detail

func (d details) Details(context.Context) (map[usage.Key]usage.Detail, error) { return d, nil }

func (details) Devices() []stats.Device {
	return []stats.Device{{Name: "/dev/sda", Reads: 9, SectorsRead: 2}}
}

func num(v uint64) *uint64 { return &v }

func summary() *statsapi.Summary {
	at := metav1.NewTime(time.UnixMilli(1_700_000_000_500))
	start := metav1.NewTime(time.Unix(1_600_000_000, 0))
	cpu := func(v uint64) *statsapi.CPUStats {
		return &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: num(v), PSI: &statsapi.PSIStats{Some: statsapi.PSIData{Total: 2_000_000}}}
	}
	memory := func(v uint64) *statsapi.MemoryStats {
		return &statsapi.MemoryStats{Time: at, WorkingSetBytes: num(v), UsageBytes: num(2 * v), RSSBytes: num(v / 2), PageFaults: num(7)}
	}
	pod := func(name string, started metav1.Time) statsapi.PodStats {
		return statsapi.PodStats{
			PodRef: statsapi.PodReference{Name: name, Namespace: "default", UID: "uid-1"}, StartTime: started,
			CPU: cpu(2e9), Memory: memory(200),
			Network:      &statsapi.NetworkStats{Time: at, InterfaceStats: statsapi.InterfaceStats{Name: "eth0", RxBytes: num(11), TxErrors: num(0)}},
			ProcessStats: &statsapi.ProcessStats{ProcessCount: num(3)},
			Containers: []statsapi.ContainerStats{{
				Name: "c", StartTime: start, CPU: cpu(15e8), Memory: memory(150),
				Swap:   &statsapi.SwapStats{Time: at, SwapUsageBytes: num(10), SwapAvailableBytes: num(30)},
				Rootfs: &statsapi.FsStats{Time: at, UsedBytes: num(5), CapacityBytes: num(50)},
			}, {Name: "unknown"}},
		}
	}
	return &statsapi.Summary{
		Node: statsapi.NodeStats{NodeName: "n", StartTime: start, CPU: cpu(9e9), Memory: memory(900)},
		Pods: []statsapi.PodStats{pod("web", start), pod("web", at)}, // two of one name
	}
}

// compare compares the metrics of these names, or all, as they are scraped.
func compare(t *testing.T, c prometheus.Collector, want string, names ...string) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	var got strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		name := line
		for _, prefix := range []string{"# HELP ", "# TYPE "} {
			name = strings.TrimPrefix(name, prefix)
		}
		if end := strings.IndexAny(name, "{ "); end > 0 {
			name = name[:end]
		}
		if len(names) == 0 || slices.Contains(names, name) {
			got.WriteString(line)
		}
	}
	if got.String() != strings.TrimPrefix(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
}

func TestResource(t *testing.T) {
	c := usage.Resource(&summaries{sum: summary()}, 0)
	want := `
# HELP container_cpu_usage_seconds_total CPU time of a container.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="default",pod="web"} 1.5 1700000000500
# HELP container_memory_working_set_bytes Working set of a container.
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="c",namespace="default",pod="web"} 150 1700000000500
# HELP container_start_time_seconds Start of a container, Unix time.
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",namespace="default",pod="web"} 1.6e+09
# HELP container_swap_limit_bytes Swap that a container may use.
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="c",namespace="default",pod="web"} 40 1700000000500
# HELP container_swap_usage_bytes Swap used by a container.
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="c",namespace="default",pod="web"} 10 1700000000500
# HELP node_cpu_usage_seconds_total CPU time of the node.
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 9 1700000000500
# HELP node_memory_working_set_bytes Working set of the node.
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 900 1700000000500
# HELP pod_cpu_usage_seconds_total CPU time of a pod.
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="default",pod="web"} 2 1700000000500
# HELP pod_memory_working_set_bytes Working set of a pod.
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="default",pod="web"} 200 1700000000500
# HELP resource_scrape_error 1 if the stats could not be read.
# TYPE resource_scrape_error gauge
resource_scrape_error 0
# HELP scrape_error 1 if the stats could not be read (older name of resource_scrape_error).
# TYPE scrape_error gauge
scrape_error 0
`
	compare(t, c, want)
}

func TestContainers(t *testing.T) {
	c := usage.Containers(usage.Config{
		Stats: &summaries{sum: summary()},
		Details: details{
			{PodUID: "uid-1", Container: "c"}: {
				Name: "abc", Image: "img:1",
				Detail: stats.Detail{
					Path: "/kubepods/poduid-1/abc", Cgroup: stats.Cgroup{Cache: num(77), OOMKills: num(1)},
					Disks: []stats.DiskIO{{Device: "/dev/sda", Reads: 3}, {Device: "/dev/sdb", Reads: 4}},
				},
			},
			{PodUID: "uid-1"}: {Detail: stats.Detail{Path: "/kubepods/poduid-1"}},
			{PodUID: "uid-1", Container: usage.Sandbox}: {
				Name: "def", Image: "pause",
				Detail: stats.Detail{
					Path: "/kubepods/poduid-1/def", Interfaces: []stats.Interface{{Name: "eth0", RxPackets: num(2)}},
					Usage: &statsapi.ContainerStats{CPU: &statsapi.CPUStats{UsageCoreNanoSeconds: num(5e8)}},
				},
			},
		},
		Machine: usage.Machine{Cores: 4, PhysicalCores: 2, Sockets: 1, MemoryBytes: 1 << 30},
	})
	want := `
# HELP container_cpu_usage_seconds_total CPU time.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 9 1700000000500
container_cpu_usage_seconds_total{container="",cpu="total",id="/kubepods/poduid-1",image="",name="",namespace="default",pod="web"} 2 1700000000500
container_cpu_usage_seconds_total{container="",cpu="total",id="/kubepods/poduid-1/def",image="pause",name="def",namespace="default",pod="web"} 0.5
container_cpu_usage_seconds_total{container="c",cpu="total",id="/kubepods/poduid-1/abc",image="img:1",name="abc",namespace="default",pod="web"} 1.5 1700000000500
# HELP container_fs_limit_bytes Size of a file system in bytes.
# TYPE container_fs_limit_bytes gauge
container_fs_limit_bytes{container="c",device="",id="/kubepods/poduid-1/abc",image="img:1",name="abc",namespace="default",pod="web"} 50 1700000000500
# HELP container_fs_reads_total Reads from a device.
# TYPE container_fs_reads_total counter
container_fs_reads_total{container="",device="",id="/kubepods/poduid-1",image="",name="",namespace="default",pod="web"} 0
container_fs_reads_total{container="",device="",id="/kubepods/poduid-1/def",image="pause",name="def",namespace="default",pod="web"} 0
container_fs_reads_total{container="",device="/dev/sda",id="/",image="",name="",namespace="",pod=""} 9
container_fs_reads_total{container="c",device="/dev/sda",id="/kubepods/poduid-1/abc",image="img:1",name="abc",namespace="default",pod="web"} 3
container_fs_reads_total{container="c",device="/dev/sdb",id="/kubepods/poduid-1/abc",image="img:1",name="abc",namespace="default",pod="web"} 4
# HELP container_memory_cache Memory of the page cache, in bytes.
# TYPE container_memory_cache gauge
container_memory_cache{container="c",id="/kubepods/poduid-1/abc",image="img:1",name="abc",namespace="default",pod="web"} 77
# HELP container_network_receive_bytes_total Bytes received.
# TYPE container_network_receive_bytes_total counter
container_network_receive_bytes_total{container="",id="/kubepods/poduid-1/def",image="pause",interface="eth0",name="def",namespace="default",pod="web"} 11 1700000000500
# HELP container_network_receive_packets_total Packets received.
# TYPE container_network_receive_packets_total counter
container_network_receive_packets_total{container="",id="/kubepods/poduid-1/def",image="pause",interface="eth0",name="def",namespace="default",pod="web"} 2 1700000000500
# HELP container_oom_events_total OOM kills of processes.
# TYPE container_oom_events_total counter
container_oom_events_total{container="c",id="/kubepods/poduid-1/abc",image="img:1",name="abc",namespace="default",pod="web"} 1
# HELP container_processes Processes.
# TYPE container_processes gauge
container_processes{container="",id="/kubepods/poduid-1",image="",name="",namespace="default",pod="web"} 3
# HELP container_scrape_error 1 if the stats could not be read.
# TYPE container_scrape_error gauge
container_scrape_error 0
# HELP machine_cpu_cores CPUs of the machine.
# TYPE machine_cpu_cores gauge
machine_cpu_cores{boot_id="",machine_id="",system_uuid=""} 4
`
	names := []string{
		"container_cpu_usage_seconds_total", "container_fs_limit_bytes", "container_fs_reads_total", "container_memory_cache", "container_network_receive_bytes_total",
		"container_network_receive_packets_total", "container_oom_events_total", "container_processes", "container_scrape_error", "machine_cpu_cores",
	}
	compare(t, c, want, names...)
	reg := prometheus.NewPedanticRegistry() // what is sent is what was described
	reg.MustRegister(c)
	if _, err := reg.Gather(); err != nil {
		t.Error(err)
	}
}

func TestStatsThatCannotBeHad(t *testing.T) {
	broken := &summaries{err: errors.New("no cgroups")}
	for _, tc := range []struct {
		c    prometheus.Collector
		name string
	}{
		{usage.Resource(broken, 0), "resource_scrape_error"},
		{usage.Containers(usage.Config{Stats: broken}), "container_scrape_error"},
	} {
		want := "# HELP " + tc.name + " 1 if the stats could not be read.\n# TYPE " + tc.name + " gauge\n" + tc.name + " 1\n"
		compare(t, tc.c, want, tc.name)
	}
}
