package kernel

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// machine are the files of /proc of a small machine.
var machine = fstest.MapFS{
	"proc/meminfo":                  file("MemTotal:        1000 kB\nMemFree:          400 kB\nInactive(file):   100 kB\nAnonPages:   200 kB\nSwapTotal:  100 kB\nSwapFree:   40 kB\nHugePages_Total:       0\nNew: x kB\n"),
	"proc/stat":                     file("cpu  100 1 2 5000 5 3 4 6 7 8\ncpu0 1 1 1\nintr 5 6\nbtime 1700000000\n"),
	"proc/loadavg":                  file("0.52 0.58 0.59 2/1234 5678\n"),
	"proc/sys/kernel/pid_max":       file("4194304\n"),
	"proc/sys/kernel/threads-max":   file("1000\n"),
	"proc/7/limits":                 file("Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 4096                 files     \n"),
	"proc/8/limits":                 file("Max open files            unlimited            unlimited            files     \n"),
	"proc/7/net/dev":                file("h\nh\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"),
	"proc/net/dev":                  file("h\nh\n eth1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"),
	"proc/partitions":               file("major minor  #blocks  name\n\n   8        0  500 sda\n 259        1  400 nvme0n1\n"),
	"proc/diskstats":                file(" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0 1 1\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n 8 1 sda1 short\n"),
	"sys/devices/system/cpu/online": file("0-3,8\n"),
	"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": file("0\n"),
	"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    file("3\n"),
	"sys/kernel/mm/hugepages/other/nr_hugepages":               file("x\n"),
	"proc/pressure/io": file("some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n"),
}

func TestMachine(t *testing.T) {
	r := At(machine)
	ctx := t.Context()
	n := Number
	if got, err := r.MemInfo(ctx); err != nil || got != (MemInfo{n(1000 << 10), n(400 << 10), n(100 << 10), n(200 << 10), n(100 << 10), n(40 << 10)}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Stat(ctx); err != nil || got != (Stat{116, 5121, 1700000000}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Threads(ctx); got != 1234 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := r.MaxThreads(ctx); got != 1000 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if got, err := r.OpenFilesLimit(ctx, 7); got != n(1024) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.OpenFilesLimit(ctx, 8); got.Known() || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Interfaces(ctx, 7); len(got) != 1 || got[0].Name != "eth0" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.HostInterfaces(ctx); len(got) != 1 || got[0].Name != "eth1" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.BlockDevices(ctx); len(got) != 2 || got["8:0"] != "sda" || got["259:1"] != "nvme0n1" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Disks(ctx); err != nil || !slices.Equal(got, []Disk{{"sda", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.OnlineCPUs(ctx); got != "0-3,8" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := r.HugePages(ctx); err != nil || !slices.Equal(got, []HugePages{{2 << 20, 3}, {1 << 30, 0}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Pressure(ctx, "io"); err != nil || got.Some.Total != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	empty := At(fstest.MapFS{})
	if got, err := empty.HugePages(ctx); got != nil || err != nil {
		t.Errorf("no huge pages: %+v, %v", got, err)
	}
	for what, err := range map[string]error{
		"meminfo": second(empty.MemInfo(ctx)), "stat": second(empty.Stat(ctx)), "loadavg": second(empty.Threads(ctx)), "pid_max": second(empty.MaxThreads(ctx)),
		"limits": second(empty.OpenFilesLimit(ctx, 7)), "7/net/dev": second(empty.Interfaces(ctx, 7)), "net/dev": second(empty.HostInterfaces(ctx)),
		"cpu/online": second(empty.OnlineCPUs(ctx)), "partitions": second(empty.BlockDevices(ctx)), "diskstats": second(empty.Disks(ctx)), "pressure/io": second(empty.Pressure(ctx, "io")),
	} {
		if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCgroupsOf(t *testing.T) {
	r := At(fstest.MapFS{
		"proc/7/cgroup": file("3:memory:/a\n2:cpu,cpuacct:/b:c\n1:name=systemd:/x (deleted)\n0::/../y\n\n"), "proc/8/cgroup": file("nonsense\n"), "proc/9/cgroup": file("0::y\n"),
	})
	want := map[string]string{"memory": "/a", "cpu": "/b:c", "cpuacct": "/b:c", "name=systemd": "/x", "": "/../y"}
	if got, err := r.CgroupsOf(t.Context(), "7"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, pid := range []string{"8", "9"} {
		var bad *FormatError
		if got, err := r.CgroupsOf(t.Context(), pid); !errors.As(err, &bad) {
			t.Errorf("%s: %v, %v", pid, got, err)
		}
	}
	if got, err := r.CgroupsOf(t.Context(), "10"); !errors.Is(err, ErrGone) {
		t.Errorf("none: %v, %v", got, err)
	}
}

func TestSwap(t *testing.T) {
	const heading = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for text, want := range map[string][]Swap{
		"": nil, heading: nil, heading + "/dev/sda1 partition 1 0 -2\n\n/a\\040b file 1 0 -2\nc\n": {{"/dev/sda1", "partition"}, {`/a\040b`, "file"}, {"c", ""}},
	} {
		if got, err := At(fstest.MapFS{"proc/swaps": file(text)}).Swaps(t.Context()); !slices.Equal(got, want) || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := At(fstest.MapFS{}).Swaps(t.Context()); got != nil || err != nil {
		t.Errorf("a kernel without: %+v, %v", got, err)
	}
	const cg = "sys/fs/cgroup/"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"nothing", nil, false},
		{"v1", map[string]string{cg + "memory/memory.memsw.limit_in_bytes": "1"}, true},
		{"v1 without", map[string]string{cg + "memory/memory.limit_in_bytes": "1"}, false},
		{"v2, own", map[string]string{cg + "cgroup.controllers": "", cg + "a/b/memory.swap.max": "max", "proc/self/cgroup": "0::/a/b\n"}, true},
		{"v2, another", map[string]string{cg + "cgroup.controllers": "", cg + "a/memory.swap.max": "0", "proc/self/cgroup": "0::/\n"}, true},
		{"v2 without", map[string]string{cg + "cgroup.controllers": "", cg + "a/memory.max": "0", cg + "a/b/memory.swap.max": "0", "proc/self/cgroup": "0::/a\n"}, false},
	} {
		if got, err := At(files(tt.files)).LimitsSwap(t.Context()); got != tt.want || err != nil {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestMachineOfNonsense(t *testing.T) {
	for _, text := range []string{"MemTotal: x kB", "MemTotal: -1 kB", "MemTotal: 9007199254740992 kB", "MemTotal: 1 MB", "MemTotal: 1 kB\nSwapTotal: x kB"} {
		var bad *FormatError
		if got, err := parseMemInfo("meminfo", []byte(text)); !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := parseMemInfo("meminfo", []byte("MemFree: 1 kB\n")); err != nil || got != (MemInfo{Free: Number(1024)}) {
		t.Errorf("no total: %+v, %v", got, err)
	}
	for _, text := range []string{"x", "-1", "9223372036854775807", ""} {
		if got, err := At(fstest.MapFS{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": file(text)}).HugePages(t.Context()); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"cpu 1 2 3 4 5 6 7 x", "cpu 1 2 3 4 5 6 7 -8", "btime x", "btime -1"} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"", "1 2 3", "0 0 0 1/-2", "0 0 0 7"} {
		if n, err := parseThreads([]byte(text)); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
	if n, err := At(fstest.MapFS{"proc/sys/kernel/pid_max": file("x"), "proc/sys/kernel/threads-max": file("0")}).MaxThreads(t.Context()); err == nil {
		t.Errorf("%d threads", n)
	}
}

func FuzzMachine(f *testing.F) {
	for _, m := range machine {
		f.Add(m.Data)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMemInfo("meminfo", b); err == nil {
			if n, _ := m.Total.Number(); n%1024 != 0 || n>>63 != 0 {
				t.Errorf("memory %+v of %q", m, b)
			}
		}
		if s, err := parseStat(b); err == nil && s.Boot < 0 {
			t.Errorf("%+v of %q", s, b)
		}
		if n, err := parseThreads(b); err == nil && n < 0 {
			t.Errorf("%d threads of %q", n, b)
		}
		for _, s := range parseSwaps(b) {
			if s.Name == "" {
				t.Errorf("%+v of %q", s, b)
			}
		}
		if all, err := ParseCgroups(b); err == nil {
			for _, dir := range all {
				if !strings.HasPrefix(dir, "/") {
					t.Errorf("cgroup %q of %q", dir, b)
				}
			}
		}
		for _, d := range parseDisks(b) {
			if len(strings.Fields(d.Name)) != 1 {
				t.Errorf("%+v of %q", d, b)
			}
		}
	})
}
