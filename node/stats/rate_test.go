package stats

import (
	"errors"
	"reflect"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestCPURate(t *testing.T) {
	t0 := time.Unix(1000, 0)
	before := cpuSample{t0, 5e9}
	for _, tt := range []struct {
		name string
		now  cpuSample
		want uint64
		err  bool
	}{
		{"half a core", cpuSample{t0.Add(10 * time.Second), 10e9}, 500_000_000, false},
		{"idle", cpuSample{t0.Add(time.Second), 5e9}, 0, false},
		{"same time", cpuSample{t0, 6e9}, 0, true},
		{"back in time", cpuSample{t0.Add(-time.Second), 6e9}, 0, true},
		{"counter decreases", cpuSample{t0.Add(time.Second), 4e9}, 0, true},
		{"nonsense", cpuSample{t0.Add(1), 1<<64 - 1}, 0, true},
	} {
		got, err := cpuRate(before, tt.now)
		if got != tt.want || (err != nil) != tt.err {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
	if _, err := cpuRate(before, cpuSample{t0.Add(1), 1}); !errors.Is(err, errCounterReset) {
		t.Errorf("a reset is %v", err)
	}
}

func TestRates(t *testing.T) {
	var r rates
	t0 := time.Unix(1000, 0)
	for _, tt := range []struct {
		name  string
		after time.Duration
		total uint64
		want  *uint64
	}{
		{"the first", 0, 0, nil},
		{"too soon after the first", 100 * time.Millisecond, 1e9, nil},
		{"the second", 10 * time.Second, 10e9, ptr[uint64](1e9)},
		{"too soon", 10100 * time.Millisecond, 11e9, ptr[uint64](1e9)},
		{"reset", 20 * time.Second, 1e9, nil},
		{"after the reset", 21 * time.Second, 3e9, ptr[uint64](2e9)},
		{"too late", 15 * time.Minute, 9e9, nil},
	} {
		if got := r.next("a", cpuSample{t0.Add(tt.after), tt.total}); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
	r.forget(t0.Add(24 * time.Minute))
	if len(r.last) != 1 {
		t.Error("forgets too early")
	}
	r.forget(t0.Add(26 * time.Minute))
	if len(r.last) != 0 {
		t.Error("keeps what is 11 minutes old")
	}
}

func TestLivePods(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for _, tt := range []struct {
		name string
		all  []Sandbox
		want string
	}{
		{"old not ready, new ready", []Sandbox{{ID: "old", CreatedAt: at(1)}, {ID: "new", CreatedAt: at(2), Ready: true}}, "new"},
		{"old ready, new not", []Sandbox{{ID: "old", CreatedAt: at(1), Ready: true}, {ID: "new", CreatedAt: at(2)}}, "old"},
		{"none ready", []Sandbox{{ID: "b", CreatedAt: at(2)}, {ID: "a", CreatedAt: at(1)}}, "b"},
	} {
		if got := livePods(tt.all)[""]; got.ID != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got.ID, tt.want)
		}
	}
	got := running([]Container{{ID: "dead", Name: "a"}, {ID: "1", Name: "a", Running: true, CreatedAt: at(1)}, {ID: "2", Name: "a", Running: true, CreatedAt: at(2)}})
	if len(got[""]) != 1 || got[""][0].ID != "2" {
		t.Errorf("running: %+v", got[""])
	}
}

func TestBuild(t *testing.T) {
	n := ptr[uint64]
	for _, tt := range []struct {
		limit uint64
		want  *uint64
	}{{100, n(60)}, {10, n(0)}, {unlimited - 1, n(unlimited - 41)}, {unlimited, nil}, {1<<64 - 1, nil}} {
		if got := memoryStats(&Usage{WorkingSet: n(40), MemoryLimit: &tt.limit}).AvailableBytes; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("limit %d: available %v; want %v", tt.limit, got, tt.want)
		}
	}
	if m := memoryStats(&Usage{MemoryLimit: n(5)}); *m.WorkingSetBytes != 0 || m.UsageBytes != nil || m.AvailableBytes != nil {
		t.Errorf("no memory: %+v", m)
	}
	if c := cpuStats(&Usage{}, nil); *c.UsageNanoCores != 0 || *c.UsageCoreNanoSeconds != 0 {
		t.Errorf("no processor: %+v", c)
	}
	if c := cpuStats(&Usage{CPU: n(5), CPURate: n(7)}, n(9)); *c.UsageNanoCores != 7 {
		t.Errorf("a rate of the runtime's becomes %d", *c.UsageNanoCores)
	}
	if c := cpuStats(&Usage{CPU: n(5)}, nil); c.UsageNanoCores != nil {
		t.Errorf("an unknown rate becomes %d", *c.UsageNanoCores)
	}
	if s := swapStats(&Usage{}); s != nil {
		t.Errorf("no swap: %+v", s)
	}
	if s := swapStats(&Usage{Swap: n(5), SwapLimit: n(1<<64 - 1)}); s.SwapAvailableBytes != nil {
		t.Errorf("unlimited swap: %+v", s)
	}
	if ioStats(&Usage{}) != nil || add(nil, nil) != nil || *add(nil, n(3)) != 3 || *add(n(2), n(3)) != 5 {
		t.Error("io or add")
	}

	pod := statsapi.PodStats{Containers: []statsapi.ContainerStats{{}, {}, {}}}
	psi := &statsapi.PSIStats{}
	setContainer(&pod.Containers[0], &Usage{At: time.Unix(1, 0), CPU: n(5), Memory: n(10), WorkingSet: n(8), MemoryLimit: n(20), Swap: n(1), CPUPressure: psi}, n(100))
	setContainer(&pod.Containers[1], &Usage{At: time.Unix(2, 0), CPU: n(6), Memory: n(3), WorkingSet: n(3)}, nil)
	sum(&pod)
	if c := pod.CPU; *c.UsageCoreNanoSeconds != 11 || *c.UsageNanoCores != 100 || c.Time.Unix() != 2 || c.PSI != nil {
		t.Errorf("sum of processors: %+v", c)
	}
	if m := pod.Memory; *m.UsageBytes != 13 || *m.WorkingSetBytes != 11 || *m.AvailableBytes != 12 || *m.RSSBytes != 0 {
		t.Errorf("sum of memory: %+v", m)
	}
	if *pod.Swap.SwapUsageBytes != 1 || pod.Swap.SwapAvailableBytes != nil || pod.IO != nil {
		t.Errorf("sum of swap: %+v", pod.Swap)
	}
}
