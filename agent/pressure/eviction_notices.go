package pressure

import (
	"path/filepath"
	"slices"

	block "github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/notify"
	"github.com/nodewright/nodewright/eviction/rank"
)

// KernelNotices returns the kernel's notifiers of memory pressure, for EvictionConfig.Notify:
// stalls of the whole node (PSI), and, for the cgroup of all pods, stalls and limits (cgroup v2)
// or usage levels (cgroup v1). The notifiers of the cgroup are for thresholds of allocatable
// memory. podsCgroup is the cgroup of all pods, relative to the mount points, or "" if there is
// none. v2 reports whether the machine uses cgroup v2.
func KernelNotices(podsCgroup string, v2 bool, thresholds []rank.Threshold) []block.Notifier {
	const cgroups, pressure = "/sys/fs/cgroup", "/proc/pressure/memory"
	about := func(s rank.Signal) bool {
		return slices.ContainsFunc(thresholds, func(t rank.Threshold) bool { return t.Signal == s })
	}
	var out []block.Notifier
	add := func(s rank.Signal, triggers ...notify.Trigger) {
		out = append(out, block.Notifier{Source: notify.New(triggers...), Signal: s})
	}
	if about(rank.SignalMemory) {
		if v2 {
			add(rank.SignalMemory, notify.PSI(pressure, 0, 0))
		} else {
			add(rank.SignalMemory, notify.PSI(pressure, 0, 0), notify.Usage(filepath.Join(cgroups, "memory")))
		}
	}
	if about(rank.SignalAllocatableMemory) && podsCgroup != "" {
		if v2 {
			add(rank.SignalAllocatableMemory, notify.PSI(filepath.Join(cgroups, podsCgroup, "memory.pressure"), 0, 0),
				notify.Events(filepath.Join(cgroups, podsCgroup, "memory.events")))
		} else {
			add(rank.SignalAllocatableMemory, notify.Usage(filepath.Join(cgroups, "memory", podsCgroup)))
		}
	}
	return out
}
