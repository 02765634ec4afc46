package cgroups

import (
	"os"
	"slices"
	"testing"
	"testing/quick"

	v1 "k8s.io/api/core/v1"
)

func words(ws []write) []string {
	var out []string
	for _, w := range ws {
		out = append(out, w.file+" "+w.value)
	}
	return out
}

func TestWrites(t *testing.T) {
	sizes := []int64{1 << 30, 2 << 20}
	limited := level{quota: 50000, period: 100000, memory: 1 << 20, memorySwap: 1 << 20}
	free := level{quota: Unlimited, period: 100000, memory: Unlimited, memorySwap: Unlimited}
	cpu := func(quota int64, period uint64) Resources { return Resources{CPUQuota: &quota, CPUPeriod: &period} }
	for _, tc := range []struct {
		name   string
		r      Resources
		have   level
		v1, v2 []string
	}{
		{"nothing", Resources{}, free, nil, nil},
		{"all", Resources{
			CPUShares: ptr(uint64(1024)), CPUQuota: ptr(int64(20000)), CPUPeriod: ptr(uint64(100000)), CPUSet: "0-1",
			Memory: ptr(int64(1 << 20)), Pids: ptr(int64(5)), Hugepages: map[int64]int64{2 << 20: 4 << 20, 3 << 20: 1}, OtherHugepages: ptr(int64(0)),
			Unified: map[string]string{"memory.low": "9", "memory.high": "8"},
		}, free,
			[]string{"cpuset.cpus 0-1", "cpu.shares 1024", "cpu.cfs_period_us 100000", "cpu.cfs_quota_us 20000", "memory.limit_in_bytes 1048576",
				"pids.max 5", "hugetlb.2MB.limit_in_bytes 4194304", "hugetlb.1GB.limit_in_bytes 0"},
			[]string{"cpuset.cpus 0-1", "cpu.weight 39", "cpu.max 20000 100000", "memory.max 1048576",
				"pids.max 5", "hugetlb.2MB.max 4194304", "hugetlb.1GB.max 0", "memory.high 8", "memory.low 9"}},
		{"no limits", Resources{CPUQuota: ptr(int64(Unlimited)), Memory: ptr(int64(Unlimited)), Pids: ptr(int64(Unlimited)), MemorySwap: ptr(int64(Unlimited))}, limited,
			[]string{"cpu.cfs_quota_us -1", "memory.memsw.limit_in_bytes -1", "memory.limit_in_bytes -1", "pids.max max"},
			[]string{"cpu.max max 100000", "memory.max max", "memory.swap.max max", "pids.max max"}},
		{"no swap, more memory", Resources{Memory: ptr(int64(2 << 20)), MemorySwap: ptr(int64(0))}, limited,
			[]string{"memory.memsw.limit_in_bytes 2097152", "memory.limit_in_bytes 2097152"}, []string{"memory.max 2097152", "memory.swap.max 0"}},
		{"no swap, less memory", Resources{Memory: ptr(int64(4096)), MemorySwap: ptr(int64(0))}, limited,
			[]string{"memory.limit_in_bytes 4096", "memory.memsw.limit_in_bytes 4096"}, []string{"memory.max 4096", "memory.swap.max 0"}},
		// Half of 100ms becomes all of 10ms: of 50ms in 10ms, and 10ms in
		// 100ms on the way, neither is between. Then the quota comes first.
		{"more CPU, shorter period", cpu(10000, 10000), limited,
			[]string{"cpu.cfs_quota_us 10000", "cpu.cfs_period_us 10000"}, []string{"cpu.max 10000 10000"}},
		{"more CPU, longer period", cpu(400000, 200000), limited,
			[]string{"cpu.cfs_quota_us 400000", "cpu.cfs_period_us 200000"}, []string{"cpu.max 400000 200000"}},
		{"less CPU, longer period", cpu(50000, 200000), limited,
			[]string{"cpu.cfs_period_us 200000", "cpu.cfs_quota_us 50000"}, []string{"cpu.max 50000 200000"}},
	} {
		if got := words(V1.writes(tc.r, sizes, tc.have)); !slices.Equal(got, tc.v1) {
			t.Errorf("%s, v1:\n got %q\nwant %q", tc.name, got, tc.v1)
		}
		if got := words(V2.writes(tc.r, sizes, tc.have)); !slices.Equal(got, tc.v2) {
			t.Errorf("%s, v2:\n got %q\nwant %q", tc.name, got, tc.v2)
		}
	}
}

func TestSame(t *testing.T) {
	for _, tc := range []struct {
		w    write
		have string
		want bool
	}{
		{write{controller: "memory", file: "memory.max", value: "1000000001"}, "999997440\n", true},
		{write{controller: "memory", file: "memory.max", value: "8192"}, "4096", false},
		{write{controller: "memory", file: "memory.limit_in_bytes", value: "-1"}, unlimitedText, true},
		{write{controller: "memory", file: "memory.max", value: "0"}, "max", false},
		{write{controller: "hugetlb", file: "hugetlb.2MB.max", value: "3000000"}, "2097152", true},
		{write{controller: "hugetlb", file: "hugetlb.2MB.max", value: "4194304"}, "2097152", false},
		{write{controller: "pids", file: "pids.max", value: "5"}, "6", false},
		{write{controller: "pids", file: "pids.max", value: "max"}, "max\n", true},
		{write{controller: "cpu", file: "cpu.weight", value: "39"}, "40", false},
		{write{controller: "cpu", file: "cpu.max", value: "max 100000"}, "max 100000\n", true},
	} {
		if got := tc.w.same(tc.have, 4096); got != tc.want {
			t.Errorf("%s: %q and %q same: %v, want %v", tc.w.file, tc.have, tc.w.value, got, tc.want)
		}
	}
}

const unlimitedText = "9223372036854771712"

func TestParts(t *testing.T) {
	base := level{share: 10, quota: 50000, period: 100000, memory: 8 << 20, low: 1 << 20}
	with := func(f func(*level)) level {
		l := base
		f(&l)
		return l
	}
	limit, request := part{v1.ResourceCPU, true}, part{v1.ResourceCPU, false}
	memLimit, memRequest := part{v1.ResourceMemory, true}, part{v1.ResourceMemory, false}
	for _, tc := range []struct {
		name     string
		want     level
		resource v1.ResourceName
		up, down []part
	}{
		{"the same", base, v1.ResourceCPU, nil, nil},
		{"another resource", with(func(l *level) { l.share, l.quota = 20, 60000 }), v1.ResourceMemory, nil, nil},
		{"cpu grows", with(func(l *level) { l.share, l.quota = 20, 60000 }), v1.ResourceCPU, []part{limit, request}, nil},
		{"cpu shrinks", with(func(l *level) { l.share, l.quota = 5, 40000 }), v1.ResourceCPU, nil, []part{request, limit}},
		{"less request, more limit", with(func(l *level) { l.share, l.quota = 5, 60000 }), v1.ResourceCPU, []part{limit}, []part{request}},
		{"no quota any more", with(func(l *level) { l.quota = Unlimited }), v1.ResourceCPU, []part{limit}, nil},
		{"the same share of another period", with(func(l *level) { l.quota, l.period = 5000, 10000 }), v1.ResourceCPU, nil, nil},
		{"memory grows", with(func(l *level) { l.memory, l.low = 16<<20, 2<<20 }), v1.ResourceMemory, []part{memLimit, memRequest}, nil},
		{"memory shrinks", with(func(l *level) { l.memory, l.low = 4<<20, 0 }), v1.ResourceMemory, nil, []part{memRequest, memLimit}},
		{"less than a page", with(func(l *level) { l.memory += int64(os.Getpagesize()) - 1 }), v1.ResourceMemory, nil, nil},
		{"no limit any more", with(func(l *level) { l.memory = Unlimited }), v1.ResourceMemory, []part{memLimit}, nil},
		{"another resource altogether", with(func(l *level) { l.memory = 1 }), v1.ResourceStorage, nil, nil},
	} {
		if got := partsUp(base, tc.want, tc.resource); !slices.Equal(got, tc.up) {
			t.Errorf("%s: up %v, want %v", tc.name, got, tc.up)
		}
		if got := partsDown(base, tc.want, tc.resource); !slices.Equal(got, tc.down) {
			t.Errorf("%s: down %v, want %v", tc.name, got, tc.down)
		}
	}
}

func TestAdopted(t *testing.T) {
	want := OfPod(podWith("p", "cpu=100m memory=1Mi/cpu=200m memory=2Mi"), PodOptions{ReserveMemory: true})
	fresh := level{share: 100, quota: Unlimited, period: 100000, memory: Unlimited}
	for _, tc := range []struct {
		name           string
		have           level
		quota, mem, lo bool // given
	}{
		{"never written", fresh, true, true, true},
		{"has less", level{share: 1, quota: 1000, period: 100000, memory: 4096}, true, true, true},
		{"has more", level{share: 100, quota: 90000, period: 100000, memory: 4 << 20, low: 2 << 20}, false, false, false},
		{"has more memory", level{share: 100, quota: 1000, period: 100000, memory: 4 << 20}, true, false, true},
	} {
		give, all := V2.adopted(tc.have, want)
		_, lo := give.Unified[memoryLow]
		if got := (give.CPUQuota != nil); got != tc.quota {
			t.Errorf("%s: quota given %v", tc.name, got)
		}
		if got := (give.Memory != nil); got != tc.mem {
			t.Errorf("%s: memory given %v", tc.name, got)
		}
		if lo != tc.lo || give.CPUShares == nil || all != (tc.quota && tc.mem && tc.lo) {
			t.Errorf("%s: protection given %v, all %v", tc.name, lo, all)
		}
	}
	if _, ok := want.Unified[memoryLow]; !ok {
		t.Error("what was wanted was changed")
	}
}

// Up, then down, comes to what is wanted; after up, nothing is less than before
// or than wanted.
func TestPartsComeToWhatIsWanted(t *testing.T) {
	property := func(a, b [4]uint16) bool {
		of := func(n [4]uint16) level {
			l := level{share: uint64(n[0]), quota: int64(n[1]) + 1000, period: 100000, memory: int64(n[2]) << 12, low: int64(n[3]) << 12}
			if n[1]%5 == 0 {
				l.quota = Unlimited
			}
			if n[2]%5 == 0 {
				l.memory = Unlimited
			}
			return l
		}
		have, want := of(a), of(b)
		now := have
		take := func(parts []part) {
			for _, p := range parts {
				switch p {
				case part{v1.ResourceCPU, true}:
					now.quota = want.quota
				case part{v1.ResourceCPU, false}:
					now.share = want.share
				case part{v1.ResourceMemory, true}:
					now.memory = want.memory
				case part{v1.ResourceMemory, false}:
					now.low = want.low
				}
			}
		}
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
			take(partsUp(now, want, name))
			for _, limit := range []bool{true, false} {
				p := part{name, limit}
				if now.compare(have, p) < 0 || now.compare(want, p) < 0 {
					return false
				}
			}
			take(partsDown(now, want, name))
		}
		return now == want
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

// Between two pairs of quota and period there is never more time than the
// larger nor less than the smaller, if that can be had.
func TestCFSOrder(t *testing.T) {
	property := func(q1, q2 uint16, p1, p2 uint8) bool {
		have := level{quota: int64(q1) + 1000, period: uint64(p1)*100 + 1000}
		to := level{quota: int64(q2) + 1000, period: uint64(p2)*100 + 1000}
		ws := cfsV1(Resources{CPUQuota: &to.quota, CPUPeriod: &to.period}, have)
		inBetween := func(l level) bool {
			lo, hi := have, to
			if lo.cmpCPU(hi) > 0 {
				lo, hi = hi, lo
			}
			return l.cmpCPU(lo) >= 0 && l.cmpCPU(hi) <= 0
		}
		quotaFirst, periodFirst := level{quota: to.quota, period: have.period}, level{quota: have.quota, period: to.period}
		first := periodFirst
		if ws[0].file == "cpu.cfs_quota_us" {
			first = quotaFirst
		}
		return inBetween(first) || !inBetween(quotaFirst) && !inBetween(periodFirst)
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}
