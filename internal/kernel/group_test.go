package kernel

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

func files(of map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, s := range of {
		out[name] = file(s)
	}
	return out
}

// all is what can be read of a cgroup.
type all struct {
	CPU                                                        CPU
	Limits                                                     CPULimits
	Memory                                                     Memory
	Events                                                     MemoryEvents
	Usage, Limit, Reserved, Most, Swap, SwapLimit, Threads, Of Amount
	Kernel                                                     Amount
	IO                                                         []DiskIO
	Pressure                                                   *Pressure
	PIDs                                                       []int
	There, V2                                                  bool
	Err                                                        error
}

func readAll(ctx context.Context, r *Reader, dir string) (all, error) {
	return ReadGroup(ctx, r, dir, func(g *Group) (all, error) {
		a := all{
			CPU: g.CPU(), Limits: g.CPULimits(), Memory: g.Memory(), Events: g.MemoryEvents(), Usage: g.MemoryUsage(), Limit: g.MemoryLimit(),
			Reserved: g.MemoryReservation(), Most: g.MaxMemoryUsage(), SwapLimit: g.SwapLimit(), Threads: g.Threads(), Of: g.MaxThreads(),
			Kernel: g.KernelMemoryV1(), IO: g.IO(), Pressure: g.Pressure("memory"), V2: g.V2(),
		}
		a.Swap = g.SwapUsage(a.Memory)
		a.PIDs, a.There = g.Processes()
		a.Err = g.Err()
		return a, nil
	})
}

var v2 = map[string]string{
	"cgroup.controllers": "cpu memory\n", "p/c/cgroup.procs": "0\n7\n8\n",
	"p/c/memory.current": "1000\n", "p/c/memory.peak": "2000\n", "p/c/memory.max": "max\n", "p/c/memory.min": "5\n",
	"p/c/memory.swap.current": "70\n", "p/c/memory.swap.max": "1000\n", "p/c/memory.events": "low 0\nhigh 1\nmax 3\noom 5\noom_kill 2\n",
	"p/c/memory.stat":     "anon 300\nfile 400\nfile_mapped 50\ninactive_file 250\nactive_file 6\nkernel 77\npgfault 8\npgmajfault 9\nfile_dirty 10\nfile_writeback 11\npgscan 12\npgsteal 13\nworkingset_refault_file 14\nworkingset_refault_anon 15\n",
	"p/c/memory.pressure": "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
	"p/c/cpu.stat":        "usage_usec 3000000\nuser_usec 1000000\nsystem_usec 2000000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5000000\nnr_bursts 6\nburst_usec 7\n",
	"p/c/cpu.weight":      "20\n", "p/c/cpu.max": "max 100000\n", "p/c/pids.current": "7\n", "p/c/pids.max": "max\n",
	"p/c/io.stat": "253:0\n8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n\nx:y rbytes=1\n",
}

var v1 = map[string]string{
	"memory/p/c/cgroup.procs": "7\n8\n", "memory/p/c/memory.usage_in_bytes": "1000\n", "memory/p/c/memory.max_usage_in_bytes": "2000\n",
	"memory/p/c/memory.limit_in_bytes": "9223372036854771712\n", "memory/p/c/memory.soft_limit_in_bytes": "5\n", "memory/p/c/memory.memsw.limit_in_bytes": "1000\n",
	"memory/p/c/memory.failcnt": "3\n", "memory/p/c/memory.kmem.usage_in_bytes": "77\n", "memory/p/c/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	"memory/p/c/memory.stat":             "cache 1\ninactive_file 2\npgfault 3\npgmajfault 4\ntotal_rss 300\ntotal_cache 400\ntotal_mapped_file 50\ntotal_inactive_file 250\ntotal_active_file 6\ntotal_swap 70\ntotal_pgfault 8\ntotal_pgmajfault 9\ntotal_dirty 10\ntotal_writeback 11\ntotal_workingset_refault_file 14\ntotal_workingset_refault_anon 15\n",
	"cpu,cpuacct/p/c/cpuacct.usage":      "3000000000\n",
	"cpu,cpuacct/p/c/cpuacct.usage_user": "1000000000\n", "cpu,cpuacct/p/c/cpuacct.usage_sys": "2000000000\n",
	"cpu,cpuacct/p/c/cpu.stat":   "nr_periods 10\nnr_throttled 4\nthrottled_time 5000000000\nnr_bursts 6\nburst_time 7000\n",
	"cpu,cpuacct/p/c/cpu.shares": "500\n", "cpu,cpuacct/p/c/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/p/c/cpu.cfs_period_us": "100000\n",
	"pids/p/c/pids.current": "7\n", "pids/p/c/pids.max": "max\n",
	"blkio/p/c/blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\n8:0 Sync 1\n8:0 Total 30\nTotal 30\n",
	"blkio/p/c/blkio.throttle.io_serviced":                "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
}

// Both versions say the same in other words.
func TestGroup(t *testing.T) {
	n, none := Number, Amount{kind: isUnlimited}
	want := all{
		CPU:    CPU{n(3e9), n(1e9), n(2e9), n(10), n(4), n(5e9), n(6), n(7000)},
		Limits: CPULimits{n(500), none, n(100000)},
		Memory: Memory{
			Anon: n(300), Cache: n(400), Mapped: n(50), InactiveFile: n(250), ActiveFile: n(6), Dirty: n(10), Writeback: n(11),
			Faults: n(8), MajorFaults: n(9), AllFaults: n(8), AllMajorFaults: n(9), RefaultedFile: n(14), RefaultedAnon: n(15),
		},
		Events: MemoryEvents{Max: n(3), OOMKills: n(2)},
		Usage:  n(1000), Limit: none, Reserved: n(5), Most: n(2000), Swap: n(70), SwapLimit: n(1000), Threads: n(7), Of: none,
		IO: []DiskIO{{"8:0", 10, 20, 1, 2}}, PIDs: []int{7, 8}, There: true,
	}
	for name, tree := range map[string]map[string]string{"v1": v1, "v2": v2} {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(t.Context(), New(Options{Cgroups: Of(files(tree))}), "/p/c")
			if err != nil || got.Err != nil || got.V2 != (name == "v2") || got.Pressure != nil != got.V2 {
				t.Fatalf("%v, %v, v2 %t, pressure %v", err, got.Err, got.V2, got.Pressure)
			}
			want := want
			if got.V2 {
				want.V2, want.Events.Low, want.Events.High, want.Events.OOM = true, n(0), n(1), n(5)
				want.Memory.Kernel, want.Memory.Scanned, want.Memory.Reclaimed = n(77), n(12), n(13)
				want.Limits.Shares = n(2 + 19*262142/9999)
				if p := *got.Pressure; p.Some != (Stall{1, 2, 3, 4}) || p.Full != (Stall{Total: 5}) || p.Some.Duration() != 4*time.Microsecond {
					t.Errorf("pressure %+v", p)
				}
			} else {
				want.Memory.Faults, want.Memory.MajorFaults, want.Memory.Swap, want.Kernel = n(3), n(4), n(70), n(77)
			}
			if !slices.Equal(got.IO, want.IO) || !slices.Equal(got.PIDs, want.PIDs) {
				t.Errorf("disks %+v, processes %v", got.IO, got.PIDs)
			}
			got.Pressure, got.IO, got.PIDs, want.IO, want.PIDs = nil, nil, nil, nil, nil
			if a, b := got, want; a.CPU != b.CPU || a.Limits != b.Limits || a.Memory != b.Memory || a.Events != b.Events || a.Usage != b.Usage || a.Limit != b.Limit ||
				a.Reserved != b.Reserved || a.Most != b.Most || a.Swap != b.Swap || a.SwapLimit != b.SwapLimit || a.Threads != b.Threads || a.Of != b.Of ||
				a.Kernel != b.Kernel || !a.There {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// Every file may be missing: its values are absent, and no error.
func TestAGroupThatEnds(t *testing.T) {
	for name, tree := range map[string]map[string]string{"v1": v1, "v2": v2} {
		for gone := range tree {
			if gone == "cgroup.controllers" {
				continue
			}
			left := files(tree)
			delete(left, gone)
			if got, err := readAll(t.Context(), New(Options{Cgroups: Of(left)}), "p/c"); err != nil || got.Err != nil {
				t.Errorf("%s without %s: %v, %v", name, gone, err, got.Err)
			}
		}
		r := New(Options{Cgroups: Of(files(tree))})
		if got, err := readAll(t.Context(), r, "/none"); err != nil || got.There || got.Usage.Known() || got.CPU != (CPU{}) {
			t.Errorf("%s: none: %+v, %v", name, got, err)
		}
		if names, err := r.Children(t.Context(), "/p"); !slices.Equal(names, []string{"c"}) || err != nil {
			t.Errorf("%s: children %v, %v", name, names, err)
		}
		if names, err := r.Children(t.Context(), "/"); !slices.Equal(names, []string{"p"}) || err != nil {
			t.Errorf("%s: children of the root %v, %v", name, names, err)
		}
		if names, err := r.Children(t.Context(), "/none"); names != nil || !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: children of none %v, %v", name, names, err)
		}
	}
}

// What cannot be read is absent, and an error that names the file.
func TestAGroupOfNonsense(t *testing.T) {
	tree := maps.Clone(v2)
	for _, name := range []string{"memory.current", "memory.max", "pids.current", "cpu.max", "memory.pressure"} {
		tree["p/c/"+name] = "some nonsense total=x\n"
	}
	tree["p/c/cpu.stat"], tree["p/c/memory.stat"] = "usage_usec x\nuser_usec 18446744073709551615\n", strings.Repeat("x", maxTable+1)
	got, err := readAll(t.Context(), New(Options{Cgroups: Of(files(tree))}), "p/c")
	if err != nil || got.Usage.Known() || got.Limit.Known() || got.Threads.Known() || got.CPU.Total.Known() || got.Memory != (Memory{}) || got.Pressure != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if user, _ := got.CPU.User.Number(); user != math.MaxUint64/1000*1000 {
		t.Errorf("user time %d", user)
	}
	for _, name := range []string{"memory.current", "memory.max", "pids.current", "cpu.max", "pressure", "memory.stat"} {
		if got.Err == nil || !strings.Contains(got.Err.Error(), name) {
			t.Errorf("%v; want one of %s", got.Err, name)
		}
	}
	if !errors.Is(got.Err, ErrTooLong) {
		t.Errorf("%v", got.Err)
	}
}

// A cgroup that hangs costs one timeout, and no other cgroup anything.
func TestAGroupThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, hang := Hanging(), make(chan struct{})
		r := New(Options{Cgroups: hangs{Of(files(v2)), "p/c/memory.stat", hang}, Timeout: time.Second})
		began := time.Now()
		for range 3 {
			if got, err := readAll(t.Context(), r, "p/c"); !errors.Is(err, ErrNoAnswer) || got.There || !strings.Contains(err.Error(), "p/c/memory.stat") {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if took := time.Since(began); took != time.Second || Hanging()-before != 1 {
			t.Errorf("after %v, %d hang", took, Hanging()-before)
		}
		if v2, err := r.V2(t.Context()); !v2 || err != nil {
			t.Errorf("another file: %v, %v", v2, err)
		}
		close(hang)
		synctest.Wait()
		if got, err := readAll(t.Context(), r, "p/c"); err != nil || !got.There || Hanging() != before {
			t.Errorf("afterwards: %+v, %v", got, err)
		}
	})
}

type hangs struct {
	Files
	name string
	hang chan struct{}
}

func (h hangs) Read(name string, most int) ([]byte, error) {
	if name == h.name {
		<-h.hang
	}
	return h.Files.Read(name, most)
}

func TestAmount(t *testing.T) {
	none := Amount{kind: isUnlimited}
	for text, want := range map[string]Amount{
		"max\n": none, "-1": none, "0": Number(0), "4096\n": Number(4096), "4611686018427387903": Number(1<<62 - 1),
		"4611686018427387904": none, "9223372036854771712": none, "9223372036854710272": none, "18446744073709551615": none,
	} {
		if got, err := parseAmount("f", []byte(text)); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1K", "-2", "18446744073709551616", "1 2"} {
		if got, err := parseAmount("f", []byte(text)); got.Known() || err == nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if a := Number(5); *a.Pointer(9) != 5 || *none.Pointer(9) != 9 || (Amount{}).Pointer(9) != nil {
		t.Error("Pointer")
	}
	for _, tt := range []struct{ a, b, want Amount }{
		{Number(5), Number(3), Number(2)}, {Number(3), Number(5), Number(0)}, {Number(3), Amount{}, Number(3)}, {none, Number(3), none}, {Amount{}, Number(3), Amount{}},
	} {
		if got := tt.a.Less(tt.b); got != tt.want {
			t.Errorf("%+v less %+v is %+v, want %+v", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestParsePressure(t *testing.T) {
	got, err := ParsePressure([]byte("full avg10=0.00 avg60=0.12 avg300=0.09 total=175528747\nsome avg10=61.73 avg60=32.44 avg300=53.43 total=16494842597\n"))
	if want := (Pressure{Stall{61.73, 32.44, 53.43, 16494842597}, Stall{0, 0.12, 0.09, 175528747}}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, ok := range []string{"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", "some total=1", "irq total=x\nsome total=1 avg900=x"} {
		if _, err := ParsePressure([]byte(ok)); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "full total=1", "some total=-1", "some total=", "some avg10=NaN", "some avg10=-1", "some avg10=x total=1", "some avg10=Inf", "some avg10=1e300"} {
		if p, err := ParsePressure([]byte(bad)); err == nil {
			t.Errorf("%q = %+v; want an error", bad, p)
		}
	}
	if _, err := ParsePressure(nil); !errors.Is(err, ErrAbsent) {
		t.Errorf("nothing: %v", err)
	}
}

func TestParsePIDs(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "12\n3\n12\n": {12, 3, 12}, "0\n7\n": {7}, "7\nx\n8": {7, 8}, "-7\n": nil, "99999999999\n": nil,
	} {
		if got := ParsePIDs([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestParseInterfaces(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  net1:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0
  eth0: 10 20 30 40 0 0 0 0 50 60 70 80 0 0 0 0
  bad0: x 20 30 40 0 0 0 0 50 60 70 80 0 0 0 0
  few0: 1 2
`
	got := ParseInterfaces([]byte(text))
	if want := []Interface{{"net1", 1, 2, 3, 4, 5, 6, 7, 8}, {"eth0", 10, 20, 30, 40, 50, 60, 70, 80}}; !slices.Equal(got, want) {
		t.Errorf("%+v; want %+v", got, want)
	}
}

func FuzzParsePressure(f *testing.F) {
	f.Add([]byte("some avg10=61.73 avg60=32.44 avg300=53.43 total=16494842597\nfull avg10=0.00 avg60=0.12 avg300=0.09 total=175528747\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePressure(raw)
		if err == nil && (!(p.Some.Avg10 >= 0 && p.Full.Avg300 >= 0) || p.Some.Duration() < 0) {
			t.Errorf("%q = %+v", raw, p)
		}
	})
}

func FuzzParseInterfaces(f *testing.F) {
	f.Add([]byte("Inter-|   Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n := ParseInterfaces(raw); len(n) > strings.Count(string(raw), ":") {
			t.Errorf("%d interfaces of %q", len(n), raw)
		}
	})
}

// FuzzGroup reads cgroups of both versions whose files have any content.
func FuzzGroup(f *testing.F) {
	for _, tree := range []map[string]string{v1, v2} {
		for _, text := range tree {
			f.Add(text, "max 100000\n")
		}
	}
	f.Fuzz(func(t *testing.T, table, number string) {
		for _, tree := range []map[string]string{v1, v2} {
			tree := maps.Clone(tree)
			for name := range tree {
				switch {
				case name == "cgroup.controllers":
				case strings.Contains(name, "stat") || strings.Contains(name, "blkio") || strings.Contains(name, "procs"):
					tree[name] = table
				default:
					tree[name] = number
				}
			}
			got, err := readAll(t.Context(), New(Options{Cgroups: Of(files(tree))}), "p/c")
			if err != nil || !got.There {
				t.Fatal(err)
			}
			if n, ok := got.Limits.Shares.Number(); ok && got.V2 && (n < 2 || n > 262144) {
				t.Errorf("%d shares of %q", n, number)
			}
			for _, a := range []Amount{got.Usage, got.Limit, got.SwapLimit, got.Limits.Quota, got.Of} {
				if n, ok := a.Number(); ok && n >= unlimited {
					t.Errorf("%d of %q", n, number)
				}
			}
			for _, d := range got.IO {
				if !isDevice(d.Device) {
					t.Errorf("%+v of %q", d, table)
				}
			}
			for _, pid := range got.PIDs {
				if pid <= 0 {
					t.Errorf("process %d of %q", pid, table)
				}
			}
		}
	})
}

func TestParseTable(t *testing.T) {
	got := ParseTable([]byte("low 0\nhigh 3\noom_kill 18446744073709551615\nbad x\nalone\n"))
	want := Table{"low": 0, "high": 3, "oom_kill": math.MaxUint64}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte("low 0\noom_kill 7\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := ParseTable(b); len(n) > strings.Count(string(b), " ") {
			t.Errorf("%v of %q", n, b)
		}
	})
}
