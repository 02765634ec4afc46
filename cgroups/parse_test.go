package cgroups

import (
	"maps"
	"slices"
	"testing"
)

func TestParseLimit(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"max\n", Unlimited, true}, {"-1", Unlimited, true}, {"0", 0, true}, {"4096\n", 4096, true},
		{"9223372036854771712", Unlimited, true}, {"18446744073709551615", Unlimited, true},
		{"4611686018427387904", 1 << 62, true}, {"", 0, false}, {"1K", 0, false},
	} {
		got, err := parseLimit([]byte(tc.in))
		if got != tc.want || (err == nil) != tc.ok {
			t.Errorf("parseLimit(%q) = %d, %v, want %d", tc.in, got, err, tc.want)
		}
	}
}

func TestParseCPUMax(t *testing.T) {
	for _, tc := range []struct {
		in     string
		quota  int64
		period uint64
		ok     bool
	}{
		{"max 100000\n", -1, 100000, true}, {"50000 100000", 50000, 100000, true},
		{"max", 0, 0, false}, {"1 0", 0, 0, false}, {"a 1", 0, 0, false}, {"", 0, 0, false},
	} {
		quota, period, err := parseCPUMax([]byte(tc.in))
		if (err == nil) != tc.ok || tc.ok && (quota != tc.quota || period != tc.period) {
			t.Errorf("parseCPUMax(%q) = %d, %d, %v", tc.in, quota, period, err)
		}
	}
}

func TestMachineV1(t *testing.T) {
	const in = `30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 master:3 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /a /mnt/with\040space/memory rw - cgroup cgroup rw,memory
33 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
35 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
broken line
`
	m := machineV1([]byte(in))
	want := map[string]string{
		"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
		"memory": "/sys/fs/cgroup/memory", "name=systemd": "/sys/fs/cgroup/systemd",
	}
	if !maps.Equal(m.of, want) || m.unified != "/sys/fs/cgroup/unified" {
		t.Errorf("controllers at %v, v2 at %q", m.of, m.unified)
	}
	if want := []string{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"}; !slices.Equal(m.points, want) {
		t.Errorf("hierarchies %v, want %v", m.points, want)
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{
		"1\n2\n", "low 0\nhigh 1\noom_kill 2\n", "max 100000\n", "max", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"34 30 0:29 / /sys/fs/cgroup/un\\040ified rw - cgroup2 cgroup2 rw\n", "2:cpu,cpuacct:/a\n", "hugetlb.2MB.max", "18446744073709551615",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, err := parseLimit(data); err == nil && n < Unlimited {
			t.Errorf("limit %d of %q", n, data)
		}
		if quota, period, err := parseCPUMax(data); err == nil && (quota < Unlimited || period == 0) {
			t.Errorf("cpu.max %d %d of %q", quota, period, data)
		}
		if size, ok := parseHugetlbFile(string(data), ".max"); ok && size <= 0 {
			t.Errorf("page size %d of %q", size, data)
		}
		machineV1(data)
	})
}
