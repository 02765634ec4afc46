package nodeagent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/node/oom"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/numa"
)

func hardware(cpu, memory string) *Hardware {
	return &Hardware{
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Machine: status.Facts{Capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		}},
	}
}

func TestHardwareThatCannotBe(t *testing.T) {
	for _, tc := range []struct {
		change func(*Hardware)
		want   string
	}{
		{func(*Hardware) {}, ""},
		{func(h *Hardware) { h.NUMA = numa.Uniform(1, 2, 4, 1, 1<<30) }, ""},
		{func(h *Hardware) { h.IPs = nil }, "Options.Hardware.IPs is empty"},
		{func(h *Hardware) { h.Machine.Capacity[v1.ResourceCPU] = resource.MustParse("1500m") }, "cpu is 1500m"},
		{func(h *Hardware) { delete(h.Machine.Capacity, v1.ResourceMemory) }, "memory 0"},
		{func(h *Hardware) { h.NUMA = numa.Uniform(1, 1, 4, 1, 1<<30) }, "has 4 CPUs; want the 8"},
		{func(h *Hardware) {
			h.NUMA = numa.Uniform(1, 1, 8, 1, 1<<30)
			h.NUMA.CPUs[1] = h.NUMA.CPUs[0]
		}, "Options.Hardware.NUMA: "},
	} {
		h := hardware("8", "16Gi")
		tc.change(h)
		switch err := h.validate(); {
		case tc.want == "" && err != nil:
			t.Error(err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%v; want %q", err, tc.want)
		}
	}
}

// A node of other hardware has its capacity and addresses, less what the configuration
// sets aside, and nothing of the machine below.
func TestNodeOfOtherHardware(t *testing.T) {
	c, _, err := load(t, configHead+"maxPods: 500\npodsPerCore: 10\nsystemReserved: {cpu: \"1\", memory: 2Gi}\n", "--hostname-override", "n1", "--node-labels", "a=b")
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{Config: c, Hardware: hardware("8", "16Gi")}
	n, err := b.node()
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "n1" || strings.Join(n.IPs, " ") != "192.0.2.1 2001:db8::1" || n.Labels["a"] != "b" || n.Capacity.Cpu().Value() != 8 ||
		n.Capacity.Pods().Value() != 80 || n.Allocatable.Cpu().Value() != 7 || len(n.Capacity) != 3 {
		t.Errorf("%+v", n)
	}
	if b.Hardware.Machine.Capacity.Pods().Value() != 0 {
		t.Error("the description was changed")
	}
	if b.Describer() != status.Machine(b.Hardware) || b.cpus() != 8 {
		t.Error("the machine below is described")
	}
	h := b.Hardware
	if h.Default(false).String() != "192.0.2.1" || h.Default(true).String() != "2001:db8::1" || (&Hardware{}).Default(true).IsValid() {
		t.Errorf("default addresses %v, %v", h.Default(false), h.Default(true))
	}
	f, err := h.Facts(t.Context())
	if err != nil || f.Capacity.Cpu().Value() != 8 {
		t.Errorf("%+v, %v", f, err)
	}
	f.Capacity[v1.ResourceCPU] = resource.MustParse("1")
	if h.Machine.Capacity.Cpu().Value() != 8 {
		t.Error("who asks can change the description")
	}
	c.CPUManagerPolicy = "static"
	if _, err := placementOf(t.TempDir(), c, n.Capacity, b.numa); err == nil {
		t.Error("CPUs are placed on a machine that is not known")
	}
}

// What a node of other hardware knows of its machine is what the description says: its
// boot, its kernel's notices and log.
func TestNothingOfTheMachineBelow(t *testing.T) {
	c, _, err := load(t, configHead)
	if err != nil {
		t.Fatal(err)
	}
	h := hardware("8", "16Gi")
	h.Machine.BootID = "boot-7"
	b := &Builder{Config: c, Hardware: h, Facts: newFacts(), Log: zap.NewNop()}
	if boot, err := b.boot(); boot != "boot-7" || err != nil {
		t.Errorf("boot %q, %v", boot, err)
	}
	list := []rank.Threshold{{Signal: rank.SignalMemory}}
	if got := b.notices(list); len(got) != 0 {
		t.Errorf("notices of another kernel: %v", got)
	}
	h.Notices = []eviction.Notifier{{Signal: rank.SignalMemory}}
	if got := b.notices(list); len(got) != 1 {
		t.Errorf("notices %v; want that of the hardware", got)
	}
	if p, err := OOM(b); p != nil || err != nil {
		t.Errorf("OOM kills of another kernel: %v, %v", p, err)
	}
	h.KernelLog = func(bool) (oom.Log, error) { return nil, errors.New("none") }
	if p, err := OOM(b); p == nil || err != nil {
		t.Errorf("no OOM kills: %v", err)
	}
	cfg, err := b.agent(nil, nil)
	if err != nil || cfg.Volumes.BootID != "boot-7" {
		t.Errorf("volumes know the boot %q, %v", cfg.Volumes.BootID, err)
	}
	if (&Builder{}).notices(list) == nil {
		t.Error("no notices of this kernel")
	}
}
