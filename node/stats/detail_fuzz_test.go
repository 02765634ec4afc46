package stats

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Whatever is in the files of a cgroup and of its processes, what is told of
// disks, interfaces and devices is of lines that are there, and a limit is
// never one that means none.
func FuzzDetail(f *testing.F) {
	f.Add("8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n7:1 rbytes=9\n\n8:0\n", "max 100000\n", "Max open files            1024                 4096                 files     \n")
	f.Add("8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 12\n", "50000 100000\n", "eth0: 30 3 0 1 0 0 0 0 40 4 0 2 0 0 0 0\n")
	f.Add("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0\n", "-1\n", "18446744073709551615\n")
	f.Add("8 0 sda 1 1 1 18446744073709551615 1 1 1 9223372036854775807 1 1 9223372036855 1\n", "18446744073709551615\n", "")
	f.Add("user_usec 18446744073709551615\n", "10000 100000\n", "")
	f.Add("usage_usec 18446744073709551615\nuser_usec 18446744073709551615\n", "9223372036854771712\n", "Max open files\n")
	f.Fuzz(func(t *testing.T, table, number, limits string) {
		file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
		proc := fstest.MapFS{
			"partitions": file("major minor  #blocks  name\n\n   8        0  500 sda\n" + table), "diskstats": file(table),
			"7/limits": file(limits), "7/fd/0": file(""),
		}
		for _, v2 := range []bool{true, false} {
			files := fstest.MapFS{}
			for _, dir := range []string{"", "cpu/", "cpuacct/", "memory/", "pids/", "blkio/"} {
				for name, data := range map[string]string{
					"cgroup.procs": "7\n", "cpu.stat": table, "cpu.max": number, "cpu.weight": number, "memory.stat": table, "memory.events": table,
					"memory.peak": number, "memory.max": number, "memory.min": number, "memory.swap.max": number, "pids.current": number, "pids.max": number,
					"io.stat": table, "cpu.shares": number, "cpu.cfs_quota_us": number, "cpu.cfs_period_us": number, "memory.oom_control": table,
					"memory.limit_in_bytes": number, "memory.memsw.limit_in_bytes": number, "cpuacct.usage_user": number, "cpuacct.usage_sys": number,
					"blkio.throttle.io_service_bytes": table, "blkio.throttle.io_serviced": table,
				} {
					files[dir+"pod/"+name] = file(data)
				}
			}
			if v2 {
				files["cgroup.controllers"] = file("")
			}
			m := &Collector{kernel: kernel.New(kernel.Options{Proc: kernel.Of(proc), Cgroups: kernel.Of(files)})}
			d, pids, ok := m.cgroups().detail("pod", m.deviceNames())
			if !ok || len(pids) != 1 || *d.Processes != 1 {
				t.Fatalf("v2 %t: %v, %v", v2, pids, ok)
			}
			d.readFiles(m.cgroups(), proc, pids)
			if *d.FileDescriptors != 1 || *d.Sockets != 0 {
				t.Fatalf("%d files and %d sockets are open, want 1 and 0", *d.FileDescriptors, *d.Sockets)
			}
			if d.CPUShares != nil && v2 && (*d.CPUShares < 2 || *d.CPUShares > 262144) {
				t.Fatalf("%d shares", *d.CPUShares)
			}
			if d.UserNanos != nil && v2 && *d.UserNanos%1000 != 0 {
				t.Fatalf("%d ns of microseconds", *d.UserNanos)
			}
			for _, l := range []*uint64{d.MemoryLimit, d.SwapLimit, d.MaxThreads} {
				if l != nil && *l >= unlimited {
					t.Fatalf("a limit of %d", *l)
				}
			}
			if d.CPUQuota == nil && (d.Periods != nil || d.Throttled != nil || d.ThrottledNanos != nil || d.Bursts != nil || d.BurstNanos != nil) {
				t.Fatal("periods without a quota")
			}
			if n := strings.Count(table, "\n") + 1; len(d.Disks) > n {
				t.Fatalf("%d disks of %d lines", len(d.Disks), n)
			}
			for _, disk := range d.Disks {
				if !strings.HasPrefix(disk.Device, "/dev/") {
					t.Fatalf("disk %+v", disk)
				}
			}
		}
		for _, d := range (&Collector{kernel: kernel.New(kernel.Options{Proc: kernel.Of(proc)})}).Devices() {
			if d.ReadTime < 0 || d.WriteTime < 0 || d.Busy < 0 || d.BusyWeighted < 0 || len(strings.Fields(d.Name)) != 1 {
				t.Fatalf("device %+v", d)
			}
		}
	})
}
