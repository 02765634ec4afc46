package podspec

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// unified are the cgroup v2 values of a container, but for the constant one.
func unified(t *testing.T, in Input) string {
	t.Helper()
	var out []string
	u := compile(t, in, "app").Linux.Resources.Unified
	for _, k := range slices.Sorted(maps.Keys(u)) {
		if k != "memory.oom.group" {
			out = append(out, strings.TrimPrefix(k, "memory.")+" "+u[k])
		}
	}
	return strings.Join(out, ", ")
}

const burstable = "requests: {memory: 128Mi}, limits: {memory: 256Mi}"

func TestMemoryQoS(t *testing.T) {
	const none = "low 0, min 0"
	for _, tc := range []struct {
		name, container string
		qos             MemoryQoS
		want            string
	}{
		{"best effort", "", MemoryQoS{}, none},
		{"without a limit, the node's memory", "requests: {memory: 100Mi}", MemoryQoS{Throttling: 0.9}, "high 859832320, " + none},
		{"in whole pages", burstable, MemoryQoS{Throttling: 0.9}, "high 255012864, " + none},
		{"of another size", burstable, MemoryQoS{Throttling: 0.9, PageSize: 65536}, "high 255000576, " + none},
		{"not throttled", burstable, MemoryQoS{}, none},
		{"sooner", burstable, MemoryQoS{Throttling: 0.5}, "high 201326592, " + none},
		{"request and limit are one", "requests: {memory: 1Mi}, limits: {memory: 1Mi}", MemoryQoS{Throttling: 0.9}, none},
		{"a request protected", burstable, MemoryQoS{Throttling: 0.9, Reserve: true}, "high 255012864, low 134217728, min 0"},
		{"a promise protected", "requests: {cpu: 1, memory: 1Mi}, limits: {cpu: 1, memory: 1Mi}", MemoryQoS{Reserve: true}, "low 0, min 1048576"},
		{"no request to protect", "limits: {cpu: 1}", MemoryQoS{Reserve: true}, none},
		{"no whole page between them", "requests: {memory: 4096}, limits: {memory: 4100}", MemoryQoS{Throttling: 0.9}, none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{containers: [{name: app, image: i, resources: {"+tc.container+"}}]}")
			in.Node.MemoryQoS = &tc.qos
			if got := unified(t, in); got != "" {
				t.Errorf("cgroup v1: %s, want none", got)
			}
			in.Node.CgroupV2 = true
			if got := unified(t, in); got != tc.want {
				t.Errorf("memory.%s, want %s", got, tc.want)
			}
		})
	}
}

func TestSwap(t *testing.T) {
	const capacity = 1 << 30
	for _, tc := range []struct {
		name, pod, container string
		limited              bool
		want                 string
	}{
		{"for nobody", "", burstable, false, "swap.max 0"},
		// 128 MiB of 1000 MiB.
		{"a share", "", burstable, true, "swap.max 137438953"},
		{"a request alone", "", "requests: {memory: 128Mi}", true, "swap.max 137438953"},
		{"a limit alone", "", "limits: {memory: 128Mi}", true, "swap.max 0"},
		{"no memory named", "", "requests: {cpu: 1}", true, "swap.max 0"},
		{"best effort", "", "", true, "swap.max 0"},
		{"guaranteed", "", "limits: {cpu: 1, memory: 1Mi}, requests: {cpu: 1, memory: 1Mi}", true, "swap.max 0"},
		{"guaranteed memory alone", "", "limits: {memory: 1Mi}, requests: {memory: 1Mi}", true, "swap.max 0"},
		{"critical", "priority: 2000000000, ", burstable, true, "swap.max 0"},
		{"not quite critical", "priority: 1999999999, ", burstable, true, "swap.max 137438953"},
		{"more than the node has", "", "requests: {memory: 1001Mi}", true, "swap.max 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{"+tc.pod+"containers: [{name: app, image: i, resources: {"+tc.container+"}}]}")
			in.Node.CgroupV2 = true
			if got := unified(t, in); got != "" {
				t.Errorf("without accounting for swap: %s", got)
			}
			in.Node.Swap = &Swap{Limited: tc.limited, Capacity: capacity}
			if got := unified(t, in); got != tc.want {
				t.Errorf("memory.%s, want %s", got, tc.want)
			}
			in.Node.CgroupV2 = false
			r := compile(t, in, "app").Linux.Resources
			if r.MemorySwapLimitInBytes != r.MemoryLimitInBytes || len(r.Unified) > 0 {
				t.Errorf("cgroup v1: %d of memory and swap, want the memory's %d", r.MemorySwapLimitInBytes, r.MemoryLimitInBytes)
			}
		})
	}
}
