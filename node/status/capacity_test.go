package status

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// list reads "cpu=4 memory=1Gi".
func list(text string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func TestCapacityAndAllocatable(t *testing.T) {
	const base = "cpu=2 memory=1Gi"
	for _, tc := range []struct {
		name                             string
		before, beforeAlloc              string
		in                               Inputs
		facts, reserved, devCap, devFree string
		capacity, allocatable            string
	}{
		{name: "basic", facts: base, capacity: base + " pods=110", allocatable: base + " pods=110"},
		{name: "pods per core, fewer", facts: base, in: Inputs{PodsPerCore: 10}, capacity: base + " pods=20", allocatable: base + " pods=20"},
		{name: "pods per core, more than may be", facts: base, in: Inputs{PodsPerCore: 100}, capacity: base + " pods=110", allocatable: base + " pods=110"},
		{name: "reserved", facts: base, reserved: "cpu=500m memory=256Mi", capacity: base + " pods=110", allocatable: "cpu=1500m memory=768Mi pods=110"},
		{name: "reserved more than there is", facts: base, reserved: "cpu=3 memory=2Gi", capacity: base + " pods=110", allocatable: "cpu=0 memory=0 pods=110"},
		{name: "huge pages are no memory", facts: base + " hugepages-2Mi=128Mi", reserved: "memory=256Mi", capacity: base + " hugepages-2Mi=128Mi pods=110", allocatable: "cpu=2 memory=640Mi hugepages-2Mi=128Mi pods=110"},
		{name: "huge pages reserved are not counted twice", facts: base + " hugepages-2Mi=128Mi", reserved: "hugepages-2Mi=64Mi", capacity: base + " hugepages-2Mi=128Mi pods=110", allocatable: "cpu=2 memory=896Mi hugepages-2Mi=64Mi pods=110"},
		{name: "more huge pages than memory", facts: base + " hugepages-1Gi=2Gi", capacity: base + " hugepages-1Gi=2Gi pods=110", allocatable: "cpu=2 memory=0 hugepages-1Gi=2Gi pods=110"},
		{name: "storage", facts: base + " ephemeral-storage=10Gi", in: Inputs{LocalStorage: true}, reserved: "ephemeral-storage=1Gi", capacity: base + " ephemeral-storage=10Gi pods=110", allocatable: base + " ephemeral-storage=9Gi pods=110"},
		{name: "storage is not counted", facts: base + " ephemeral-storage=10Gi", capacity: base + " pods=110", allocatable: base + " pods=110"},
		{name: "devices", facts: base, devCap: "a.com/gpu=4", devFree: "a.com/gpu=3", capacity: base + " pods=110 a.com/gpu=4", allocatable: base + " pods=110 a.com/gpu=3"},
		{name: "devices gone", facts: base, before: "a.com/gpu=4", beforeAlloc: "a.com/gpu=3", in: Inputs{Devices: Devices{Gone: []v1.ResourceName{"a.com/gpu"}}}, capacity: base + " pods=110 a.com/gpu=0", allocatable: base + " pods=110 a.com/gpu=0"},
		{name: "opaque resources stay", facts: base, before: "b.com/dongle=7", capacity: base + " pods=110 b.com/dongle=7", allocatable: base + " pods=110 b.com/dongle=7"},
		{name: "stale extended", facts: base, beforeAlloc: "b.com/dongle=7", capacity: base + " pods=110", allocatable: base + " pods=110"},
		{name: "a size of huge pages that is no more", facts: base, before: "hugepages-2Mi=1Gi", beforeAlloc: "hugepages-2Mi=1Gi", capacity: base + " pods=110", allocatable: base + " pods=110"},
		{name: "more memory than before", facts: "cpu=4 memory=2Gi", before: base, beforeAlloc: base, capacity: "cpu=4 memory=2Gi pods=110", allocatable: "cpu=4 memory=2Gi pods=110"},
		{name: "no machine", in: Inputs{FactsErr: errors.New("x"), PodsPerCore: 1}, capacity: "cpu=0 memory=0 pods=110", allocatable: "cpu=0 memory=0 pods=110"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.MaxPods, in.Facts.Capacity, in.Reserved = 110, list(tc.facts), list(tc.reserved)
			if tc.devCap != "" {
				in.Devices.Capacity, in.Devices.Allocatable = list(tc.devCap), list(tc.devFree)
			}
			got := capacityOf(list(tc.before), &in)
			if !equality.Semantic.DeepEqual(got, list(tc.capacity)) {
				t.Errorf("capacity %v, want %s", got, tc.capacity)
			}
			free := allocatableOf(list(tc.beforeAlloc), got, &in)
			if !equality.Semantic.DeepEqual(free, list(tc.allocatable)) {
				t.Errorf("allocatable %v, want %s", free, tc.allocatable)
			}
		})
	}
}

func TestRebootIsToldOnce(t *testing.T) {
	node := &v1.Node{}
	node.Name = "edge-1"
	in := &Inputs{Facts: Facts{BootID: "one", Swap: 7}}
	seen := &Seen{}
	if ev := setMachine(node, in, seen); len(ev) != 0 {
		t.Errorf("first boot: %v", ev)
	}
	if node.Status.NodeInfo.Swap == nil || *node.Status.NodeInfo.Swap.Capacity != 7 {
		t.Errorf("swap %v", node.Status.NodeInfo.Swap)
	}
	in.Facts.BootID = "two"
	stale := node.DeepCopy()
	if ev := setMachine(node, in, seen); len(ev) != 1 || ev[0] != (Event{"Warning", "Rebooted", "Node edge-1 has been rebooted, boot id: two"}) {
		t.Errorf("second boot: %v", ev)
	}
	if ev := setMachine(stale, in, seen); len(ev) != 0 {
		t.Errorf("again: %v", ev)
	}
	in.Facts.BootID, in.Facts.MachineID = "", ""
	if setMachine(node, in, seen); node.Status.NodeInfo.BootID != "two" {
		t.Errorf("boot ID %q after one that could not be read", node.Status.NodeInfo.BootID)
	}
	in.Facts.Swap = 0
	if setMachine(node, in, seen); node.Status.NodeInfo.Swap != nil {
		t.Error("swap stays")
	}
}

func TestSystem(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	files := fstest.MapFS{
		"proc/meminfo":                                             file("MemTotal:       1024 kB\nSwapTotal: 2 kB\n"),
		"sys/devices/system/cpu/online":                            file("0-2,8\n"),
		"proc/sys/kernel/random/boot_id":                           file("boot\n"),
		"proc/sys/kernel/osrelease":                                file("6.1.0\n"),
		"etc/machine-id":                                           file("machine\n"),
		"etc/os-release":                                           file("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n"),
		"sys/class/dmi/id/product_uuid":                            file("uuid\n"),
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    file("3\n"),
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": file("0\n"),
	}
	got, err := System{Files: files, Storage: func() (int64, error) { return 5, nil }}.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Facts{
		Capacity: list("cpu=4 memory=1Mi hugepages-2Mi=6Mi hugepages-1Gi=0 ephemeral-storage=5"), Swap: 2048,
		MachineID: "machine", SystemUUID: "uuid", BootID: "boot", Kernel: "6.1.0", OSImage: "Debian GNU/Linux 13",
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, bad := range map[string]string{
		"proc/meminfo": "MemTotal: many kB\n", "sys/devices/system/cpu/online": "3-1",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "",
	} {
		was := files[name]
		files[name] = file(bad)
		if _, err := (System{Files: files}).Facts(t.Context()); err == nil {
			t.Errorf("%s with %q: no error", name, bad)
		}
		delete(files, name) // with its directory
		if _, err := (System{Files: files}).Facts(t.Context()); err == nil && !strings.Contains(name, "hugepages") {
			t.Errorf("without %s: no error", name)
		}
		files[name] = was
	}
	for _, name := range []string{"etc/machine-id", "etc/os-release", "sys/class/dmi/id/product_uuid"} {
		delete(files, name)
	}
	if got, err := (System{Files: files}).Facts(t.Context()); err != nil || got.OSImage != "Unknown" || got.SystemUUID != "" {
		t.Errorf("a bare system: %+v, %v", got, err)
	}
}

func FuzzSystem(f *testing.F) {
	f.Add("MemTotal: 1 kB\nSwapTotal: 1 kB", "0-3,5", "12")
	f.Add("MemTotal:9999999999999999999 kB", "0-", "")
	f.Fuzz(func(t *testing.T, meminfo, online, pages string) {
		files := fstest.MapFS{
			"proc/meminfo": {Data: []byte(meminfo)}, "sys/devices/system/cpu/online": {Data: []byte(online)},
			"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": {Data: []byte(pages)},
		}
		got, err := System{Files: files}.Facts(t.Context())
		if err == nil && (got.Capacity.Cpu().Sign() < 1 || got.Capacity.Memory().Sign() < 0) {
			t.Errorf("%v", got.Capacity)
		}
	})
}
