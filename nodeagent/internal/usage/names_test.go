package usage_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/nodeagent/internal/usage"
)

// What the dashboards and alerts of Kubernetes ask for: cAdvisor's names, types
// and labels as a kubelet has them. who is short for container, id, image,
// name, namespace and pod; of says what has it: the node, pods, sandboxes (the
// reference reports networks of them alone), containers.
var cadvisor = []struct{ name, kind, labels, of string }{
	{"container_blkio_device_usage_total", "counter", "who device major minor operation", "pod sandbox container"},
	{"container_cpu_cfs_burst_periods_total", "counter", "who", "container"},
	{"container_cpu_cfs_burst_seconds_total", "counter", "who", "container"},
	{"container_cpu_cfs_periods_total", "counter", "who", "container"}, // with a quota
	{"container_cpu_cfs_throttled_periods_total", "counter", "who", "container"},
	{"container_cpu_cfs_throttled_seconds_total", "counter", "who", "container"},
	{"container_cpu_system_seconds_total", "counter", "who", "pod sandbox container"},
	{"container_cpu_usage_seconds_total", "counter", "who cpu", "node pod sandbox container"},
	{"container_cpu_user_seconds_total", "counter", "who", "pod sandbox container"},
	{"container_file_descriptors", "gauge", "who", "pod sandbox container"},
	{"container_fs_inodes_free", "gauge", "who device", "node"},
	{"container_fs_inodes_total", "gauge", "who device", "node"},
	{"container_fs_io_current", "gauge", "who device", "node"},
	{"container_fs_io_time_seconds_total", "counter", "who device", "node"},
	{"container_fs_io_time_weighted_seconds_total", "counter", "who device", "node"},
	{"container_fs_read_seconds_total", "counter", "who device", "node"},
	{"container_fs_reads_merged_total", "counter", "who device", "node"},
	{"container_fs_sector_reads_total", "counter", "who device", "node"},
	{"container_fs_sector_writes_total", "counter", "who device", "node"},
	{"container_fs_write_seconds_total", "counter", "who device", "node"},
	{"container_fs_writes_merged_total", "counter", "who device", "node"},
	{"container_fs_limit_bytes", "gauge", "who device", "node container"},
	{"container_fs_reads_bytes_total", "counter", "who device", "node pod sandbox container"},
	{"container_fs_reads_total", "counter", "who device", "node pod sandbox container"},
	{"container_fs_usage_bytes", "gauge", "who device", "node container"},
	{"container_fs_writes_bytes_total", "counter", "who device", "node pod sandbox container"},
	{"container_fs_writes_total", "counter", "who device", "node pod sandbox container"},
	{"container_last_seen", "gauge", "who", "node pod sandbox container"},
	{"container_memory_cache", "gauge", "who", "pod sandbox container"},
	{"container_memory_events_high_total", "counter", "who", "pod sandbox container"},
	{"container_memory_events_max_total", "counter", "who", "pod sandbox container"},
	{"container_memory_failcnt", "counter", "who", "pod sandbox container"},
	{"container_memory_failures_total", "counter", "who failure_type scope", "node pod sandbox container"},
	{"container_memory_file_dirty_bytes", "gauge", "who", "pod sandbox container"},
	{"container_memory_file_writeback_bytes", "gauge", "who", "pod sandbox container"},
	{"container_memory_kernel_usage", "gauge", "who", "pod sandbox container"},
	{"container_memory_mapped_file", "gauge", "who", "pod sandbox container"},
	{"container_memory_max_usage_bytes", "gauge", "who", "pod sandbox container"},
	{"container_memory_pgscan_total", "counter", "who", "pod sandbox container"},
	{"container_memory_pgsteal_total", "counter", "who", "pod sandbox container"},
	{"container_memory_rss", "gauge", "who", "node pod sandbox container"},
	{"container_memory_swap", "gauge", "who", "node pod sandbox container"},
	{"container_memory_total_active_file_bytes", "gauge", "who", "pod sandbox container"},
	{"container_memory_total_inactive_file_bytes", "gauge", "who", "pod sandbox container"},
	{"container_memory_usage_bytes", "gauge", "who", "node pod sandbox container"},
	{"container_memory_working_set_bytes", "gauge", "who", "node pod sandbox container"},
	{"container_memory_workingset_refault_anon_total", "counter", "who", "pod sandbox container"},
	{"container_memory_workingset_refault_file_total", "counter", "who", "pod sandbox container"},
	{"container_network_receive_bytes_total", "counter", "who interface", "node sandbox"},
	{"container_network_receive_errors_total", "counter", "who interface", "node sandbox"},
	{"container_network_receive_packets_dropped_total", "counter", "who interface", "sandbox"},
	{"container_network_receive_packets_total", "counter", "who interface", "sandbox"},
	{"container_network_transmit_bytes_total", "counter", "who interface", "node sandbox"},
	{"container_network_transmit_errors_total", "counter", "who interface", "node sandbox"},
	{"container_network_transmit_packets_dropped_total", "counter", "who interface", "sandbox"},
	{"container_network_transmit_packets_total", "counter", "who interface", "sandbox"},
	{"container_oom_events_total", "counter", "who", "pod sandbox container"},
	{"container_pressure_cpu_stalled_seconds_total", "counter", "who", "node pod sandbox container"},
	{"container_pressure_cpu_waiting_seconds_total", "counter", "who", "node pod sandbox container"},
	{"container_pressure_io_stalled_seconds_total", "counter", "who", "node pod sandbox container"},
	{"container_pressure_io_waiting_seconds_total", "counter", "who", "node pod sandbox container"},
	{"container_pressure_memory_stalled_seconds_total", "counter", "who", "node pod sandbox container"},
	{"container_pressure_memory_waiting_seconds_total", "counter", "who", "node pod sandbox container"},
	{"container_processes", "gauge", "who", "pod sandbox container"},
	{"container_scrape_error", "gauge", "", ""},
	{"container_sockets", "gauge", "who", "pod sandbox container"},
	{"container_spec_cpu_period", "gauge", "who", "pod sandbox container"},
	{"container_spec_cpu_quota", "gauge", "who", "container"}, // with a quota
	{"container_spec_cpu_shares", "gauge", "who", "pod sandbox container"},
	{"container_spec_memory_limit_bytes", "gauge", "who", "pod sandbox container"},
	{"container_spec_memory_reservation_limit_bytes", "gauge", "who", "pod sandbox container"},
	{"container_spec_memory_swap_limit_bytes", "gauge", "who", "pod sandbox container"},
	{"container_start_time_seconds", "gauge", "who", "node pod sandbox container"},
	{"container_threads", "gauge", "who", "pod sandbox container"},
	{"container_threads_max", "gauge", "who", "pod sandbox container"},
	{"container_ulimits_soft", "gauge", "who ulimit", "pod sandbox container"},
	{"machine_cpu_cores", "gauge", "boot_id machine_id system_uuid", ""},
	{"machine_cpu_physical_cores", "gauge", "boot_id machine_id system_uuid", ""},
	{"machine_cpu_sockets", "gauge", "boot_id machine_id system_uuid", ""},
	{"machine_memory_bytes", "gauge", "boot_id machine_id system_uuid", ""},
	{"machine_swap_bytes", "gauge", "boot_id machine_id system_uuid", ""},
}

// filled sets every number that is nil to 1.
func filled[T any](v T) T {
	p := &v
	for i := range reflect.TypeFor[T]().NumField() {
		if f := reflect.ValueOf(p).Elem().Field(i); f.Type() == reflect.TypeFor[*uint64]() && f.IsNil() {
			f.Set(reflect.ValueOf(num(1)))
		}
	}
	return v
}

// everything is a Config of a node about which all is known.
func everything() usage.Config {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	psi := &statsapi.PSIStats{Some: statsapi.PSIData{Total: 2}, Full: statsapi.PSIData{Total: 1}}
	cpu := filled(statsapi.CPUStats{Time: at, PSI: psi})
	memory := filled(statsapi.MemoryStats{Time: at, PSI: psi})
	swap := filled(statsapi.SwapStats{Time: at})
	io := &statsapi.IOStats{Time: at, PSI: psi}
	fs := filled(statsapi.FsStats{Time: at})
	network := &statsapi.NetworkStats{Time: at, InterfaceStats: filled(statsapi.InterfaceStats{Name: "eth0"})}
	free := filled(stats.Cgroup{}) // of any quota
	free.CPUQuota, free.Periods, free.Throttled, free.ThrottledNanos, free.Bursts, free.BurstNanos = nil, nil, nil, nil, nil, nil
	disks := []stats.DiskIO{{Device: "/dev/sda"}}
	own := &statsapi.ContainerStats{StartTime: at, CPU: &cpu, Memory: &memory, Swap: &swap, IO: io}
	return usage.Config{
		Machine: usage.Machine{Cores: 8, PhysicalCores: 4, Sockets: 1, MemoryBytes: 1, SwapBytes: 1, MachineID: "m", SystemUUID: "s", BootID: "b"},
		Stats: &summaries{sum: &statsapi.Summary{
			Node: statsapi.NodeStats{StartTime: at, CPU: &cpu, Memory: &memory, Swap: &swap, IO: io, Fs: &fs, Network: network},
			Pods: []statsapi.PodStats{{
				PodRef: statsapi.PodReference{Name: "web", Namespace: "default", UID: "u"}, StartTime: at,
				CPU: &cpu, Memory: &memory, Swap: &swap, IO: io, Network: network,
				Containers: []statsapi.ContainerStats{{Name: "c", StartTime: at, CPU: &cpu, Memory: &memory, Swap: &swap, IO: io, Rootfs: &fs}},
			}},
		}},
		Details: details{
			{PodUID: "u"}: {Detail: stats.Detail{Path: "/kubepods/podu", Cgroup: free, Disks: disks}},
			{PodUID: "u", Container: usage.Sandbox}: {
				Name: "s", Image: "pause:3",
				Detail: stats.Detail{Path: "/kubepods/podu/s", Cgroup: free, Disks: disks, Usage: own, Interfaces: []stats.Interface{filled(stats.Interface{Name: "eth0"})}},
			},
			{PodUID: "u", Container: "c"}: {Name: "1", Image: "web:1", Detail: stats.Detail{Path: "/kubepods/podu/1", Cgroup: filled(stats.Cgroup{}), Disks: disks}},
		},
	}
}

// identities are the labels that tell one thing from another, as a kubelet
// fills them.
var identities = map[string]string{
	"container= id=/ image= name= namespace= pod=":                                  "node",
	"container= id=/kubepods/podu image= name= namespace=default pod=web":           "pod",
	"container= id=/kubepods/podu/s image=pause:3 name=s namespace=default pod=web": "sandbox",
	"container=c id=/kubepods/podu/1 image=web:1 name=1 namespace=default pod=web":  "container",
	"boot_id=b machine_id=m system_uuid=s":                                          "",
	"":                                                                              "",
}

func TestNamesOfCadvisor(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(usage.Containers(everything()))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*dto.MetricFamily{}
	for _, f := range families {
		got[f.GetName()] = f
	}
	for _, want := range cadvisor {
		f := got[want.name]
		delete(got, want.name)
		if f == nil {
			t.Errorf("no %s", want.name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); kind != want.kind {
			t.Errorf("%s is a %s, want %s", want.name, kind, want.kind)
		}
		labels := strings.Fields(strings.Replace(want.labels, "who", "container id image name namespace pod", 1))
		slices.Sort(labels)
		of := map[string]bool{}
		for _, m := range f.Metric {
			var names, identity []string
			for _, l := range m.Label {
				names = append(names, l.GetName())
				if !slices.Contains([]string{"cpu", "device", "failure_type", "scope", "interface", "major", "minor", "operation", "ulimit"}, l.GetName()) {
					identity = append(identity, l.GetName()+"="+l.GetValue())
				}
			}
			if !slices.Equal(names, labels) {
				t.Errorf("%s has the labels %v, want %v", want.name, names, labels)
			}
			kind, known := identities[strings.Join(identity, " ")]
			if !known {
				t.Errorf("%s is of %v", want.name, identity)
			}
			of[kind] = true
		}
		delete(of, "")
		for _, kind := range strings.Fields(want.of) {
			if !of[kind] {
				t.Errorf("%s is not told of the %s", want.name, kind)
			}
			delete(of, kind)
		}
		if len(of) > 0 {
			t.Errorf("%s is told of %v, too", want.name, slices.Collect(maps.Keys(of)))
		}
	}
	for name := range got {
		t.Errorf("%s is not in the table", name)
	}
}

// Where sandboxes have no cgroup, the network is the pod's.
func TestNetworkOfAPod(t *testing.T) {
	c := everything()
	known := c.Details.(details)
	pod := known[usage.Key{PodUID: "u"}]
	pod.Interfaces = known[usage.Key{PodUID: "u", Container: usage.Sandbox}].Interfaces
	known[usage.Key{PodUID: "u"}] = pod
	known[usage.Key{PodUID: "u", Container: usage.Sandbox}] = usage.Detail{Name: "s"}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(usage.Containers(c))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "id" && l.GetValue() == "/kubepods/podu" {
					found[f.GetName()] = true
				}
			}
		}
	}
	for _, want := range []string{"container_network_receive_bytes_total", "container_network_transmit_packets_total"} {
		if !found[want] {
			t.Errorf("the pod has no %s", want)
		}
	}
}

// Without details, a network is told of its pod.
func TestNetworkWithoutDetails(t *testing.T) {
	c := everything()
	c.Details = nil
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(usage.Containers(c))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "container_network_receive_bytes_total" {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() == "pod" && l.GetValue() == "web" {
						return
					}
				}
			}
		}
	}
	t.Error("a pod whose sandbox is not known has no network")
}
