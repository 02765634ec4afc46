package stats_test

import (
	"encoding/json"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/node/stats"
)

const netdev = "h\nh\n lo: 1 1 0 0 0 0 0 0 1 1 0 0\n eth0: 30 3 0 1 0 0 0 0 40 4 0 2 0 0 0 0\n"

// detailed has a pod whose container has a quota and its sandbox none, on
// either version of cgroups.
func detailed(v2 bool) *statsNode {
	m := newNode()
	tree(m.proc, "", map[string]string{
		"partitions": "major minor  #blocks  name\n\n   8        0  500 sda\n 259        1  400 nvme0n1\n", "77/net/dev": netdev,
		"77/limits": "Limit  Soft Limit  Hard Limit  Units\nMax processes  1  1  processes\nMax open files            1024                 4096                 files     \n",
	})
	for name, to := range map[string]string{"77/fd/0": "/dev/null", "77/fd/1": "socket:[9]", "78/fd/5": "socket:[8]"} {
		m.proc[name] = &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	if v2 {
		tree(m.cgroups, "kubepods/burstable/podu1/c1", map[string]string{
			"cpu.stat": "usage_usec 2000\nuser_usec 1500\nsystem_usec 500\nnr_periods 10\nnr_throttled 4\nthrottled_usec 9\nnr_bursts 6\nburst_usec 7\n",
			"cpu.max":  "50000 100000\n", "cpu.weight": "39\n",
			"memory.stat":   "anon 300\nkernel 30\nfile 200\nfile_mapped 20\nactive_file 90\ninactive_file 100\nfile_dirty 11\nfile_writeback 12\npgscan 13\npgsteal 14\nworkingset_refault_anon 15\nworkingset_refault_file 16\n",
			"memory.events": "low 0\nhigh 3\nmax 5\noom 1\noom_kill 2\n", "memory.peak": "900\n",
			"memory.max": "1000\n", "memory.min": "100\n", "memory.swap.max": "max\n", "pids.max": "64\n",
			"io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n7:1 rbytes=9 wbytes=9 rios=9 wios=9\n259:1 rbytes=7\n",
		})
		tree(m.cgroups, "kubepods/burstable/podu1/s1", map[string]string{"cpu.max": "max 100000\n", "cpu.stat": "usage_usec 10\nuser_usec 6\nsystem_usec 4\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"})
		return m
	}
	m.cgroups = fstest.MapFS{}
	m.cfg.Cgroups = m.cgroups
	for _, dir := range []string{"kubepods/burstable/podu1", "kubepods/burstable/podu1/c1", "kubepods/burstable/podu1/s1"} {
		tree(m.cgroups, "memory/"+dir, map[string]string{
			"memory.usage_in_bytes": "500\n", "memory.stat": "cache 1\ntotal_cache 200\ntotal_mapped_file 20\ntotal_active_file 90\ntotal_inactive_file 100\ntotal_dirty 11\ntotal_writeback 12\ntotal_workingset_refault_anon 15\ntotal_workingset_refault_file 16\n",
			"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "memory.max_usage_in_bytes": "900\n", "memory.kmem.usage_in_bytes": "30\n", "memory.failcnt": "5\n",
			"memory.limit_in_bytes": "1000\n", "memory.soft_limit_in_bytes": "9223372036854771712\n", "memory.memsw.limit_in_bytes": "9223372036854771712\n",
			"cgroup.procs": "77\n78\n",
		})
	}
	c1 := "kubepods/burstable/podu1/c1"
	tree(m.cgroups, "cpu/"+c1, map[string]string{
		"cpu.shares": "1024\n", "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 9000\nnr_bursts 6\nburst_time 7000\n", "cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n",
	})
	tree(m.cgroups, "cpu/kubepods/burstable/podu1/s1", map[string]string{
		"cpu.shares": "2\n", "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n", "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n",
	})
	tree(m.cgroups, "cpuacct/"+c1, map[string]string{"cpuacct.usage": "2000000\n", "cpuacct.usage_user": "1500000\n", "cpuacct.usage_sys": "500000\n"})
	tree(m.cgroups, "pids/"+c1, map[string]string{"pids.current": "3\n", "pids.max": "64\n"})
	tree(m.cgroups, "blkio/"+c1, map[string]string{
		"blkio.throttle.io_service_bytes_recursive": "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\n7:1 Read 9\n259:1 Read 7\nTotal 12\n",
		"blkio.throttle.io_serviced":                "8:0 Read 3\n8:0 Write 4\n",
	})
	return m
}

func TestDetails(t *testing.T) {
	for _, v2 := range []bool{true, false} {
		m := detailed(v2)
		all, err := m.manager(t).Details(func(uid types.UID) (string, bool, bool) { return "s1", true, uid == "u1" })
		if err != nil {
			t.Fatal(err)
		}
		c1, s1 := all["u1"].Containers["c1"], all["u1"].Containers["s1"]
		if len(all) != 1 || len(all["u1"].Containers) != 2 || all["u1"].Path != "/kubepods/burstable/podu1" || s1.Path != "/kubepods/burstable/podu1/s1" {
			t.Errorf("v2 %t: got %+v", v2, all)
		}
		want := stats.Cgroup{
			Cache: n(200), MappedFile: n(20), ActiveFile: n(90), InactiveFile: n(100), KernelMemory: n(30), MaxUsage: n(900), FailedCharges: n(5), OOMKills: n(2),
			Processes: n(2), Threads: n(3), MaxThreads: n(64), FileDescriptors: n(3), Sockets: n(2), OpenFilesLimit: n(1024), UserNanos: n(1500_000), SystemNanos: n(500_000),
			Periods: n(10), Throttled: n(4), ThrottledNanos: n(9000), CPUShares: n(1024), CPUPeriod: n(100_000), CPUQuota: n(50_000),
			MemoryLimit: n(1000), MemoryReservation: n(0), SwapLimit: n(0), HighEvents: n(0), MaxEvents: n(5), Dirty: n(11), Writeback: n(12),
			RefaultedAnon: n(15), RefaultedFile: n(16), Bursts: n(6), BurstNanos: n(7000),
		}
		if v2 {
			want.HighEvents, want.Scanned, want.Reclaimed = n(3), n(13), n(14)
			want.CPUShares, want.MemoryReservation = n(998), n(100)
		}
		same(t, "container", c1.Cgroup, want)
		same(t, "disks", c1.Disks, []stats.DiskIO{{Device: "/dev/sda", Major: 8, ReadBytes: 1, WriteBytes: 2, Reads: 3, Writes: 4}, {Device: "/dev/nvme0n1", Major: 259, Minor: 1, ReadBytes: 7}})
		if s1.CPUQuota != nil || s1.Periods != nil || s1.Throttled != nil || s1.ThrottledNanos != nil || *s1.CPUPeriod != 100_000 {
			t.Errorf("v2 %t: without a quota there are %+v", v2, s1.Cgroup)
		}
		same(t, "interfaces", s1.Interfaces, []stats.Interface{{Name: "eth0", RxPackets: n(3), RxDropped: n(1), TxPackets: n(4), TxDropped: n(2)}})
		if s1.Usage == nil || s1.Usage.Memory == nil || c1.Usage != nil || c1.Interfaces != nil {
			t.Errorf("v2 %t: the sandbox uses %+v, the container %+v and has %+v", v2, s1.Usage, c1.Usage, c1.Interfaces)
		}
		if *all["u1"].Processes != 6 {
			t.Errorf("v2 %t: the pod has %d processes", v2, *all["u1"].Processes)
		}
		// One that is the node's own has no figures of a network.
		all, _ = m.manager(t).Details(func(types.UID) (string, bool, bool) { return "s1", false, true })
		if all["u1"].Containers["s1"].Interfaces != nil {
			t.Errorf("v2 %t: the node's network is the pod's", v2)
		}
	}
}

// A sandbox without processes has no cgroup: its network is that of its containers.
func TestNetworkOfASandboxWithoutProcesses(t *testing.T) {
	for _, v2 := range []bool{true, false} {
		m := detailed(v2)
		all, err := m.manager(t).Details(func(uid types.UID) (string, bool, bool) { return "none", true, uid == "u1" })
		if err != nil {
			t.Fatal(err)
		}
		same(t, "interfaces", all["u1"].Interfaces, []stats.Interface{{Name: "eth0", RxPackets: n(3), RxDropped: n(1), TxPackets: n(4), TxDropped: n(2)}})
		if c := all["u1"].Containers["c1"]; c.Interfaces != nil {
			t.Errorf("v2 %t: the container has %+v", v2, c.Interfaces)
		}
		all, _ = m.manager(t).Details(func(types.UID) (string, bool, bool) { return "none", false, true })
		if all["u1"].Interfaces != nil {
			t.Errorf("v2 %t: the node's network is the pod's", v2)
		}
	}
}

func TestDevices(t *testing.T) {
	m := newNode()
	tree(m.proc, "", map[string]string{
		"diskstats": " 8 0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 1 1\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n 8 1 sda1 short\n",
	})
	same(t, "devices", m.manager(t).Devices(), []stats.Device{{
		Name: "/dev/sda", Reads: 1, ReadsMerged: 2, SectorsRead: 3, ReadTime: 4 * time.Millisecond,
		Writes: 5, WritesMerged: 6, SectorsWritten: 7, WriteTime: 8 * time.Millisecond, InFlight: 9, Busy: 10 * time.Millisecond, BusyWeighted: 11 * time.Millisecond,
	}})
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err1 := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if err1 != nil || err2 != nil || string(g) != string(w) {
		t.Errorf("%s: got %s, %v\nwant %s, %v", what, g, err1, w, err2)
	}
}

func TestDetailsOfWhatIsNotThere(t *testing.T) {
	m := newNode()
	m.cfg.PodsCgroup = "-"
	if all, err := m.manager(t).Details(nil); all != nil || err != nil {
		t.Errorf("without cgroups of pods: %v, %v", all, err)
	}
	m = newNode()
	m.cfg.PodsCgroup = "/none"
	if _, err := m.manager(t).Details(nil); err == nil {
		t.Error("no error")
	}
	m = newNode()
	tree(m.cgroups, "kubepods/podu9/c9", map[string]string{"notify": ""}) // all else is gone by now
	all, err := m.manager(t).Details(func(uid types.UID) (string, bool, bool) { return "", false, uid == "u9" })
	if err != nil || len(all) != 0 {
		t.Errorf("got %+v, %v", all, err)
	}
}
