package pressure

import (
	"path/filepath"
	"slices"

	block "github.com/nodewright/nodewright/eviction"
)

// KernelNotices returns the kernel's notices of memory running short, for
// EvictionConfig.Notify: stalls of the whole node (PSI), and of the cgroup of all pods its
// stalls and limits (cgroup v2), or levels of use (cgroup v1). The latter are for
// thresholds of allocatable memory. podsCgroup is the cgroup of all pods below
// the mount points, "" if there is none; v2 says that cgroup v2 is in charge.
func KernelNotices(podsCgroup string, v2 bool, thresholds []block.Threshold) []block.Notifier {
	const cgroups, pressure = "/sys/fs/cgroup", "/proc/pressure/memory"
	about := func(s block.Signal) bool {
		return slices.ContainsFunc(thresholds, func(t block.Threshold) bool { return t.Signal == s })
	}
	var out []block.Notifier
	add := func(s block.Signal, triggers ...block.Trigger) {
		out = append(out, block.Notifier{Source: block.NewKernelSource(triggers...), Signal: s})
	}
	if about(block.SignalMemory) {
		if v2 {
			add(block.SignalMemory, block.PSITrigger(pressure, 0, 0))
		} else {
			add(block.SignalMemory, block.PSITrigger(pressure, 0, 0), block.UsageTrigger(filepath.Join(cgroups, "memory")))
		}
	}
	if about(block.SignalAllocatableMemory) && podsCgroup != "" {
		if v2 {
			add(block.SignalAllocatableMemory, block.PSITrigger(filepath.Join(cgroups, podsCgroup, "memory.pressure"), 0, 0),
				block.EventsTrigger(filepath.Join(cgroups, podsCgroup, "memory.events")))
		} else {
			add(block.SignalAllocatableMemory, block.UsageTrigger(filepath.Join(cgroups, "memory", podsCgroup)))
		}
	}
	return out
}
